/** Asking the broker for room: any number of `waiting`, then one grant or one typed refusal with its numbers (D3). */
import { LeaseholdError, classPolicies, deniedError, type RequestClass } from '../../protocol/index.js';
import type { Control, ControlChannel } from './control.js';

/** How much longer than the broker’s own deadline an answer is waited for. */
const answerMarginMs = 5_000;

/** What the wire carries, less what is the same for all of ours: one card, no gang. `lease` null: a new lease. */
export type BudgetRequest = Omit<Control<'request_vram_budget'>, 'type' | 'id' | 'gang'> & { readonly ageMs: number };

export interface Grant {
  readonly lease: string;
  readonly device: string;
  readonly chargedBytes: number;
  readonly explain: string | null;
}

/** A request that is open: its end, and a way to make it more urgent. */
export interface OpenRequest {
  readonly granted: Promise<Grant>;
  /** Raises class and deadline by sending the same id again (D2); lower values change nothing. */
  raise(requestClass: RequestClass, deadlineMs: number): void;
}

export function requestBudget(
  channel: ControlChannel,
  request: BudgetRequest,
  options: { readonly signal: AbortSignal; readonly onWaiting: (waiting: Control<'waiting'>) => void },
): OpenRequest {
  const message = { type: 'request_vram_budget', ...request, gang: null } as const;
  const id = channel.nextId();
  let current = { class: request.class, deadlineMs: request.deadlineMs };
  let ended = false;
  const answered = channel.request(message, {
    timeoutMs: Math.min(request.deadlineMs + answerMarginMs, 2 ** 31 - 1),
    signal: options.signal,
    onInterim: (interim) => { if (interim.type === 'waiting') options.onWaiting(interim); },
  });
  return {
    granted: answered.finally(() => { ended = true; }).then((answer) => toGrant(answer, request)),
    raise: (requestClass, deadlineMs) => {
      const higher = classPolicies[requestClass].rank > classPolicies[current.class].rank;
      if (ended || (!higher && deadlineMs <= current.deadlineMs)) return;
      current = { class: higher ? requestClass : current.class, deadlineMs: Math.max(deadlineMs, current.deadlineMs) };
      channel.send({ ...message, ...current, id });
    },
  };
}

function toGrant(answer: Awaited<ReturnType<ControlChannel['request']>>, request: BudgetRequest): Grant {
  if (answer.type === 'grant') return { lease: answer.lease, device: answer.device, chargedBytes: answer.chargedBytes, explain: answer.explain };
  if (answer.type === 'deny') throw deniedError(answer, request);
  throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers request_vram_budget' });
}
