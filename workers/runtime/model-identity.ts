/** Whether a call means the model that its key names here: what would answer it is never another. */
import { LeaseholdError, type ModelSpec } from '../../protocol/index.js';
import { isForged } from '../../protocol/node/index.js';

/** Longest that options are told in an error. */
const toldCharactersMax = 200;

/** The refusal of one whose key was made of another model; null where it was not. `cards`: that models of this worker are over. */
export function forged(spec: ModelSpec, cards: number): LeaseholdError | null {
  if (!isForged(spec, cards)) return null;
  const { key, engine, source } = spec;
  const owner = key.slice(0, key.lastIndexOf('@'));
  const digest = key.slice(key.lastIndexOf('#') + 1);
  return new LeaseholdError('model_key_taken', {
    model: key, field: 'source',
    held: `the ${owner} whose file, engine and options have the digest ${digest}`, asked: `${shortened(source)} by ${engine} with ${shortened(JSON.stringify(spec.options))}`,
  });
}

/** The refusal of one that is not what is here under its key, with both; null where it is the same. How it is used is not what it is. */
export function taken(held: ModelSpec, asked: ModelSpec): LeaseholdError | null {
  const field = (['source', 'engine', 'embedding'] as const).find((name) => held[name] !== asked[name]) ?? (haveSameOptions(held, asked) ? null : 'options');
  return field === null ? null : new LeaseholdError('model_key_taken', { model: held.key, field, held: valueOf(held, field), asked: valueOf(asked, field) });
}

function haveSameOptions(held: ModelSpec, asked: ModelSpec): boolean {
  const names = Object.keys(held.options);
  return names.length === Object.keys(asked.options).length && names.every((name) => held.options[name] === asked.options[name]);
}

function valueOf(spec: ModelSpec, field: 'source' | 'engine' | 'embedding' | 'options'): string {
  const value = spec[field];
  return shortened(typeof value === 'object' ? JSON.stringify(value) : String(value));
}

function shortened(text: string): string {
  return text.length > toldCharactersMax ? `${text.slice(0, toldCharactersMax)}…` : text;
}
