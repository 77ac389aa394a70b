/** What people call things: models by their names, cards and processes without what all their ids share. */
import { tinyModelNames } from '../../orchestrator/shipped-models.js';
import type { ServedModel } from '../../orchestrator/types.js';
import { plainLine, withoutControls } from '../terminal/width.js';

export interface Names {
  /** A model's name; its key when nobody gave it one. Names that share one load are told together, by their contexts where these differ. */
  model(key: string): string;
  /** Which colour it has: the same in every picture, whatever else is loaded. */
  index(key: string): number;
  /** A sentence of the broker with the names of people in place of keys and long ids. */
  inText(text: string): string;
}

export function createNames(models: readonly ServedModel[]): Names {
  const byKey = new Map<string, string>();
  // Two names for one load: the first is the one it is shown by, unless they ask for more of it than that one does.
  for (const { key } of models) if (!byKey.has(key)) byKey.set(key, label(models.filter((model) => model.key === key)));
  const order = new Map([...byKey.keys()].map((key, index) => [key, index]));
  return {
    model: (key) => plainLine(byKey.get(key) ?? key),
    index(key) {
      const known = order.get(key);
      if (known !== undefined) return known;
      order.set(key, order.size);
      return order.size - 1;
    },
    inText(text) {
      const named = [...byKey].reduce((sentence, [key, name]) => sentence.replaceAll(key, name), text);
      return withoutControls(named).replace(/\b[0-9a-f]{12}-([wsl]\d+)\b/g, '$1').replace(/\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}\b/g, shortDevice);
    },
  };
}

/** `chat`; of presets of one file `chat (2048) or long (8192)`: what is loaded may have been asked for under either. */
function label(all: readonly ServedModel[]): string {
  // What the user calls a model that ships goes before what we call it.
  const own = all.filter(({ name }) => !tinyModelNames.some((tiny) => tiny === name));
  const named = own.length > 0 ? own : all;
  const byContext = new Map<number, string>();
  for (const { contextTokens, name } of named) if (!byContext.has(contextTokens)) byContext.set(contextTokens, name);
  if (byContext.size < 2) return named[0]?.name ?? '';
  return [...byContext].map(([contextTokens, name]) => `${name} (${String(contextTokens)})`).join(' or ');
}

/** `GPU-5f3c9a1e` of `GPU-5f3c9a1e-….`: enough to tell cards apart, and whole where it is short. */
export function shortDevice(device: string): string {
  const match = /^((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f-]{27}$/.exec(device);
  return match?.[1] ?? device;
}

/** `w3` of `<bootId>-w3`. */
export function shortGeneration(generation: string): string {
  return generation.slice(generation.lastIndexOf('-') + 1);
}
