/** Asking the broker for room: any number of `waiting`, then one grant or one typed refusal with its numbers (D3). */
import { LeaseholdError, classPolicies, deniedError, type LeaseTerms, type RequestClass } from '../../protocol/index.js';
import type { Control, ControlChannel } from './control.js';

/** How much longer than the broker’s own deadline an answer is waited for. */
const answerMarginMs = 5_000;

/** What the wire carries of a request for one card. `lease` null: a new lease. */
export type BudgetRequest = Omit<Control<'request_vram_budget'>, 'type' | 'id' | 'gang'> & { readonly ageMs: number };
type GangName = Control<'request_vram_budget'>['gang'];

export interface Grant {
  readonly lease: string;
  readonly device: string;
  readonly chargedBytes: number;
  readonly explain: string | null;
  /** Null: the machine's memory is not leased. */
  readonly keepCopy: boolean | null;
}

/** A request that is open: its end, and a way to make it more urgent. */
export interface OpenRequest<G = Grant> {
  readonly granted: Promise<G>;
  /** Raises class and deadline by sending the same id again (D2); lower values change nothing. */
  raise(requestClass: RequestClass, deadlineMs: number): void;
}

/** Open requests for all cards of a model, which are granted together. `gang`: what they are called; left out: there is one card. */
export interface OpenGang extends OpenRequest<readonly Grant[]> {
  readonly gang: LeaseTerms['gang'];
}

interface RequestOptions {
  readonly signal: AbortSignal;
  readonly onWaiting: (waiting: Control<'waiting'>) => void;
}

/** Gangs asked for by this process: each name is used once. */
let gangs = 0;

/**
 * Room on each of a model’s cards: granted on all of them, in the order asked, or refused as a whole (R125). What was
 * granted of one that was refused after all, by an answer that crossed, is handed to `unused`.
 */
export function requestOnAll(channel: ControlChannel, requests: readonly BudgetRequest[], options: RequestOptions & { readonly unused: (grant: Grant) => void }): OpenGang {
  const gang = requests.length > 1 ? { gang: `gang-${String(++gangs)}`, size: requests.length } : null;
  const open = requests.map((request) => requestBudget(channel, request, gang, options));
  const granted = Promise.allSettled(open.map((request) => request.granted)).then((results) => {
    const grants = results.filter((result) => result.status === 'fulfilled').map(({ value }) => value);
    const refusals = results.filter((result) => result.status === 'rejected').map(({ reason }) => reason as unknown);
    if (refusals.length === 0) return grants;
    for (const grant of grants) options.unused(grant);
    throw refusals.find((error) => !(error instanceof LeaseholdError) || error.code !== 'gang_broken') ?? refusals[0];
  });
  return { gang: gang ?? undefined, granted, raise: (requestClass, deadlineMs) => { for (const request of open) request.raise(requestClass, deadlineMs); } };
}

function requestBudget(channel: ControlChannel, request: BudgetRequest, gang: GangName, options: RequestOptions): OpenRequest {
  const message = { type: 'request_vram_budget', ...request, gang } as const;
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
      // Taken back in this very turn: sent again, its id would be a request of its own.
      if (ended || options.signal.aborted || (!higher && deadlineMs <= current.deadlineMs)) return;
      current = { class: higher ? requestClass : current.class, deadlineMs: Math.max(deadlineMs, current.deadlineMs) };
      channel.send({ ...message, ...current, id });
    },
  };
}

function toGrant(answer: Awaited<ReturnType<ControlChannel['request']>>, request: BudgetRequest): Grant {
  if (answer.type === 'grant') return { lease: answer.lease, device: answer.device, chargedBytes: answer.chargedBytes, explain: answer.explain, keepCopy: answer.keepCopy ?? null };
  if (answer.type === 'deny') throw deniedError(answer, request);
  throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers request_vram_budget' });
}
