// The compiled protocol, which the descriptions are read from.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Builds protocol/ and protocol/node; throws with the compiler's words. */
export function build() {
  const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
  const tsc = spawnSync(process.execPath, [join(typescript, 'bin/tsc'), '-b', 'protocol', 'protocol/node'], { cwd: root, encoding: 'utf8' });
  if (tsc.status !== 0) throw new Error(`${tsc.stdout}${tsc.stderr}`);
}

/** A module of the compiled protocol. */
export function compiled(name) {
  return import(new URL(`../../dist/protocol/${name}`, import.meta.url).href);
}
