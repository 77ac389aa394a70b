/** Errors as messages: what `error` carries on each plane, within its limits. */
import type { LeaseholdError } from '../errors.js';
import type { MessageOn, Plane } from '../validate.js';

const textCharactersMax = 2_000;
const detailsMax = 32;
const keyCharactersMax = 128;

/** `error` that ends request `id`, or with id null the connection. `tokensSent` (data plane): 0 when a retry is safe. */
export function errorMessage<P extends Plane>(plane: P, id: number | null, error: LeaseholdError, tokensSent = 0): MessageOn<P> {
  const common = { type: 'error', id, code: error.code, message: clip(error.message), details: clipped(error.details) } as const;
  const message = plane === 'data' ? { ...common, retryable: error.retryable, tokensSent } : common;
  return message as MessageOn<P>;
}

function clipped(details: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(details).filter(([key]) => key.length <= keyCharactersMax);
  return Object.fromEntries(entries.slice(0, detailsMax).map(([key, text]) => [key, clip(text)]));
}

function clip(text: string): string {
  return text.length <= textCharactersMax ? text : `${text.slice(0, textCharactersMax - 1)}…`;
}
