/** A refusal (`deny`) as an error that carries every number that decided it. */
import { LeaseholdError, isErrorCode } from './errors.js';
import type { ControlMessage } from './messages/control.js';

/**
 * Details: what was asked, the numbers of the decision and its own details, `couldHaveBytes`,
 * `roomElsewhere`, `retryAfterMs`, `explain`. What is unknown is left out,
 * never zero.
 */
export function deniedError(
  deny: Extract<ControlMessage, { readonly type: 'deny' }>,
  asked: { readonly model: string; readonly device: string; readonly deadlineMs: number },
): LeaseholdError {
  // A refusal that is about no bytes has none to tell: zeros would be taken for figures.
  const aboutBytes = deny.numbers === null || deny.numbers.needBytes > 0;
  const numbers = aboutBytes ? deny.numbers : null;
  const details: Record<string, string | number | null> = {
    model: asked.model, device: asked.device, deadlineMs: asked.deadlineMs, what: `Room for ${asked.model}`, reason: deny.message,
    couldHaveBytes: aboutBytes ? deny.couldHaveBytes : null, roomElsewhere: deny.roomElsewhere.length === 0 ? null : deny.roomElsewhere.join(', '), retryAfterMs: deny.retryAfterMs, explain: deny.explain,
    ...numbers,
    ...deny.details,
    ...(numbers === null ? {} : { mostBytes: Math.max(0, numbers.totalBytes - numbers.reserveBytes) }),
  };
  const known = Object.fromEntries(Object.entries(details).filter(([, value]) => value !== null));
  return isErrorCode(deny.code)
    ? new LeaseholdError(deny.code, known)
    : new LeaseholdError('internal', { ...known, reason: `${deny.code}: ${deny.message}` });
}
