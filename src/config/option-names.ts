/** The library's names for settings and the file's: one place tells how they differ. */
import type { Pointer } from './fault.js';
import type { Settings } from './settings.js';

/** Where the file calls it otherwise. */
const inFile: Readonly<Record<string, string>> = {
  reserveBytes: 'reserve', yieldFreeBytes: 'yield', stateFolder: 'state', engines: 'workers', contextTokens: 'context', ttlMs: 'ttl', pinned: 'pin',
};

const settingsNamed: readonly (keyof Settings)[] = ['models', 'devices', 'reserveBytes', 'yieldFreeBytes', 'stateFolder', 'engines', 'limits'];

/**
 * `models.coder.contextTokens` as `models`, `coder`, `context`, and whose setting it is; null for what no source sets.
 * A name in the middle may hold dots of its own; the option after it holds none.
 */
export function pointerOf(option: string): { readonly pointer: Pointer; readonly setting: keyof Settings } | null {
  const [, first = '', middle, last] = /^(\w+)(?:\.(.*?)(?:\.(\w+))?)?$/.exec(option) ?? [];
  const setting = settingsNamed.find((name) => name === first);
  if (setting === undefined) return null;
  const steps = [middle, last].filter((step) => step !== undefined);
  // Only a model has options of its own below its name.
  const below = setting === 'models' || steps.length < 2 ? steps : [steps.join('.')];
  return { pointer: [inFile[first] ?? first, ...below.map((step, index) => (index === below.length - 1 ? inFile[step] ?? step : step))], setting };
}
