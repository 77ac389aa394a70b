/** What a script of the simulated engine says that it takes: its sizes are its own word, and nothing is worked out. */
import { LeaseholdError } from '../../../protocol/index.js';
import { exact, sum, type Figure } from './figure.js';

export interface SimulatedEstimate {
  readonly contextTokens: number;
  readonly parallel: number;
  readonly weights: Figure;
  readonly kv: Figure;
  readonly compute: Figure;
  readonly total: Figure;
  readonly loadPeak: Figure;
}

const said = 'its script says so';

/** Of `sim:{…}`. Throws `estimate_unknown` where the script states no `weightsBytes`, or says that its size is unknown. */
export function simulatedEstimate(name: string, source: string, contextTokens: number, parallel: number): SimulatedEstimate {
  const script = scriptOf(name, source.slice('sim:'.length));
  const bytes = (field: string): number => {
    const value = script[field] ?? 0;
    if (typeof value !== 'number' || !(value >= 0)) throw new LeaseholdError('model_invalid', { source, reason: `${field} must be a number that is not negative` });
    return Math.ceil(value);
  };
  if (script['sizeUnknown'] === true || script['weightsBytes'] === undefined) {
    throw new LeaseholdError('estimate_unknown', { model: name, reason: script['sizeUnknown'] === true ? said : 'it is a script of the simulated engine that states no weightsBytes' });
  }
  const perToken = typeof script['contextBytesPerToken'] === 'number' ? script['contextBytesPerToken'] : 256;
  const weights = exact(bytes('weightsBytes'), said);
  const kv = exact(Math.ceil(perToken * contextTokens) * parallel, `${String(perToken)} B a token, as its script says`);
  const compute = exact(bytes('computeBytes'), said);
  const total = { ...sum([weights, kv, compute]), how: 'all of it, when loaded' };
  const peakBytes = bytes('loadPeakBytes');
  return { contextTokens, parallel, weights, kv, compute, total, loadPeak: peakBytes > total.bytes ? exact(peakBytes, said) : { ...total, how: 'no more than when loaded' } };
}

function scriptOf(name: string, text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text.trim() === '' ? '{}' : text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (error) {
    throw LeaseholdError.from(error, 'model_invalid', { source: name });
  }
  throw new LeaseholdError('model_invalid', { source: name, reason: 'its script must be a JSON object' });
}
