/** The engine settings of a model: texts in its spec, checked here, with what llama.cpp would do by itself made explicit. */
import { LeaseholdError, type ModelSpec } from '../../protocol/index.js';

export interface LlamaSettings {
  /** Layers on the card; null: all of them. */
  readonly gpuLayers: number | null;
  /** Where not all of them fit: at least so many, the others are left to the CPU; null: all or nothing. */
  readonly minGpuLayers: number | null;
  /** Tokens one evaluation may take; its buffers grow with it. */
  readonly batchTokens: number;
  /** Null: when the model allows it. */
  readonly flashAttention: boolean | null;
  /** Tokens evaluated between two looks at the abort signal; null: by the model's size. */
  readonly prefillTokens: number | null;
  /** Shares of the cards of a model over several, `3,1`; null: even ones. */
  readonly tensorSplit: string | null;
  /** A template in place of the model's own. */
  readonly chatTemplate: string | null;
}

const readers = {
  gpuLayers: (text: string): number => whole(text, 'gpuLayers', 0, 10_000),
  minGpuLayers: (text: string): number => whole(text, 'minGpuLayers', 0, 10_000),
  batchTokens: (text: string): number => whole(text, 'batchTokens', 1, 65_536),
  flashAttention: (text: string): boolean => choice(text, 'flashAttention'),
  prefillTokens: (text: string): number => whole(text, 'prefillTokens', 1, 65_536),
  tensorSplit: (text: string): string => text,
  chatTemplate: (text: string): string => text,
};

export const llamaOptionNames = Object.keys(readers) as readonly (keyof typeof readers)[];

/** Rejects an option it does not know: a misspelt one would be ignored without a word. */
export function readSettings(spec: ModelSpec): LlamaSettings {
  for (const name of Object.keys(spec.options)) {
    if (!Object.hasOwn(readers, name)) throw invalid(name, `the llama engine knows ${llamaOptionNames.join(', ')}`);
  }
  const read = <N extends keyof typeof readers>(name: N): ReturnType<(typeof readers)[N]> | null => {
    const text = spec.options[name];
    return text === undefined ? null : readers[name](text) as ReturnType<(typeof readers)[N]>;
  };
  return {
    gpuLayers: read('gpuLayers'),
    minGpuLayers: read('minGpuLayers'),
    batchTokens: read('batchTokens') ?? 512,
    flashAttention: read('flashAttention'),
    prefillTokens: read('prefillTokens'),
    tensorSplit: read('tensorSplit'),
    chatTemplate: read('chatTemplate'),
  };
}

function whole(text: string, name: string, minimum: number, maximum: number): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (!(value >= minimum && value <= maximum)) throw invalid(name, `it must be a whole number from ${String(minimum)} to ${String(maximum)}, not ${JSON.stringify(text)}`);
  return value;
}

function choice(text: string, name: string): boolean {
  if (text !== 'on' && text !== 'off') throw invalid(name, `it must be on or off, not ${JSON.stringify(text)}`);
  return text === 'on';
}

function invalid(name: string, reason: string): LeaseholdError {
  return new LeaseholdError('input_invalid', { field: `options.${name}`, reason });
}
