// Builds the tree, and knows whether it needs building.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's root, with the platform's separators. */
export const root = fileURLToPath(new URL('../..', import.meta.url));

const projects = ['protocol', 'broker', 'workers', 'src', 'test'];
const stamp = join(root, 'dist', '.tsbuildinfo', 'built');

/** The path of a file of an installed package, by package and path inside it. */
export function fromPackage(name, file) {
  return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), file);
}

/** Every file under `folder` (relative to the root) that `keep` accepts, as paths relative to the root with slashes. */
export function listFiles(folder, keep) {
  const found = [];
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) found.push(...listFiles(path, keep));
    else if (keep(path)) found.push(path);
  }
  return found.sort();
}

/** Compiles, and joins the command's modules, type errors or not; what both say is returned, for the caller to show or not. */
export function build() {
  const startedAtMs = Date.now();
  const steps = [[fromPackage('typescript', 'bin/tsc'), '-b'], ['src/cli/bundle.mjs']].map((args) => spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' }));
  const ok = steps.every(({ status }) => status === 0);
  if (ok) {
    mkdirSync(dirname(stamp), { recursive: true });
    writeFileSync(stamp, '');
    // The start, not the end: a source saved while the compiler ran makes the build stale again.
    utimesSync(stamp, startedAtMs / 1000, startedAtMs / 1000);
  }
  return { ok, output: steps.map(({ stdout, stderr, error }) => `${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`).join('') };
}

/** True when a source is newer than the last good build, or there was none. */
export function isStale() {
  const builtAtMs = statSync(stamp, { throwIfNoEntry: false })?.mtimeMs;
  if (builtAtMs === undefined) return true;
  const sources = projects.flatMap((folder) => listFiles(folder, (path) => /\.ts$|\/tsconfig\.json$/.test(path)));
  return ['tsconfig.json', 'tsconfig.base.json', 'package-lock.json', 'src/cli/bundle.mjs', ...sources]
    .some((path) => statSync(join(root, path)).mtimeMs > builtAtMs);
}
