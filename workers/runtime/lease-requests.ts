/** Asking the broker for room: any number of `waiting`, then one grant or one typed refusal with its numbers (D3). */
import { LeaseholdError, classPolicies, deniedError, type LeasePart, type ModelPolicy, type RequestClass } from '../../protocol/index.js';
import type { Control, ControlChannel } from './control.js';

/** How much longer than the broker’s own deadline an answer is waited for. */
const answerMarginMs = 5_000;

export interface BudgetRequest {
  readonly model: string;
  readonly device: string;
  /** Null: a new lease. */
  readonly lease: string | null;
  readonly parts: readonly LeasePart[];
  readonly peakBytes: number;
  readonly class: RequestClass;
  readonly deadlineMs: number;
  readonly ageMs: number;
  readonly parkable: boolean;
  readonly profilesFreeMemory: boolean;
  readonly source: 'estimated' | 'declared' | 'learned' | 'measured';
  readonly policy: ModelPolicy;
}

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
