/** Loads the compiled core, as it is or from a copy of its folder in which one exact string has been replaced. */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { CoreModule } from '../../../src/scenarios/world/core-module.js';

/** dist, seen from dist/test/sim/mutants. */
const dist = join(import.meta.dirname, '..', '..', '..');

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
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-mutant-'));
  try {
    const core = join(folder, 'broker', 'core');
    cpSync(join(dist, 'broker', 'core'), core, { recursive: true, filter: (path) => !path.endsWith('.map') && !path.endsWith('.d.ts') });
    symlinkSync(join(dist, 'protocol'), join(folder, 'protocol'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const path = join(core, replacement.file);
    writeFileSync(path, replaceOnce(readFileSync(path, 'utf8'), replacement));
    return (await import(pathToFileURL(join(core, 'index.js')).href)) as CoreModule;
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
