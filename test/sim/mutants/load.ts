/** Loads the compiled core, as it is or from a copy of its folder in which one exact string has been replaced. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { CoreModule } from '../../../src/scenarios/world/core-module.js';

/** dist, seen from dist/test/sim/mutants. */
const dist = join(import.meta.dirname, '..', '..', '..');
const testTimeoutMs = 120_000;

export interface Replacement {
  /** Relative to the core's folder, compiled: `admission.js`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export async function loadCore(): Promise<CoreModule> {
  return (await import(pathToFileURL(join(dist, 'broker', 'core', 'index.js')).href)) as CoreModule;
}

/** An anchor that is not there exactly once is an error: the mutant would test nothing, or more than it says. */
export async function loadMutant(replacement: Replacement): Promise<CoreModule> {
  return inMutant(replacement, async (folder) => (await import(pathToFileURL(join(folder, 'broker', 'core', 'index.js')).href)) as CoreModule);
}

/** Whether a test of the core fails with the fault in it. */
export function failsTest(replacement: Replacement, name: string): Promise<boolean> {
  return inMutant(replacement, (folder) => {
    const test = join('test', 'broker', 'core');
    cpSync(join(dist, test), join(folder, test), { recursive: true });
    const { status, error } = spawnSync(process.execPath, [join(folder, test, `${name}.test.js`)], { stdio: 'ignore', timeout: testTimeoutMs });
    if (error !== undefined) throw error;
    return status !== 0;
  });
}

/** A copy of the core with the fault in it, and beside it what it and its tests import. */
async function inMutant<T>(replacement: Replacement, use: (folder: string) => T | Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-mutant-'));
  try {
    const core = join(folder, 'broker', 'core');
    cpSync(join(dist, 'broker', 'core'), core, { recursive: true, filter: (path) => !path.endsWith('.map') && !path.endsWith('.d.ts') });
    symlinkSync(join(dist, 'protocol'), join(folder, 'protocol'));
    symlinkSync(join(dist, '..', 'node_modules'), join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const path = join(core, replacement.file);
    writeFileSync(path, replaceOnce(readFileSync(path, 'utf8'), replacement));
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function replaceOnce(text: string, { file, from, to }: Replacement): string {
  const found = text.split(from).length - 1;
  if (found !== 1) throw new Error(`the anchor is in ${file} ${found} times, not once: ${from}`);
  return text.replace(from, () => to);
}

/** A compiled file of the core, for those who look for anchors. */
export function coreFile(name: string): string {
  return readFileSync(join(dist, 'broker', 'core', name), 'utf8');
}
