/** Saying no: with the code, the numbers, what could be had, and where else there is room. */
import { available, closedText, ledgerTermBytes, numbersOf } from '../ledger/available.js';
import { withoutHeadroom } from '../ledger/headroom.js';
import { capacityBytes } from '../ledger/need.js';
import { waiterKey } from './queue.js';
import { count, emit, explain, inWords, noteAnswered, publish } from '../report.js';
import type { Card, Core } from '../state.js';
import type { ErrorCode, RequestClass } from '../../../protocol/index.js';
import type { ExplainedVictim, Verdict } from '../explain.js';

export interface Denied {
  readonly generation: string;
  readonly request: number;
  readonly model: string;
  readonly class: RequestClass | null;
  readonly arrivedUs?: number;
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, string>>;
  readonly text: string;
  readonly card?: Card | null;
  readonly requestedBytes?: number;
  readonly needBytes?: number;
  readonly floorBytes?: number;
  readonly ownHoldBytes?: number;
  readonly retryAfterMs?: number | null;
  /** It can never fit here: what another card would have to hold of it. */
  readonly elsewhereBytes?: number;
  readonly verdict?: Verdict;
  readonly victims?: readonly ExplainedVictim[];
}

/** Why a request is refused; the rest of the answer is filled in by its caller. */
export type Refusal = Pick<Denied, 'code' | 'details' | 'text' | 'retryAfterMs' | 'card' | 'requestedBytes' | 'needBytes' | 'floorBytes' | 'ownHoldBytes' | 'elsewhereBytes'>;

/** The one way to say no to a request. */
export function deny(core: Core, denied: Denied): void {
  const card = denied.card ?? null;
  const needBytes = denied.needBytes ?? 0;
  const floorBytes = denied.floorBytes ?? 0;
  const ownHoldBytes = denied.ownHoldBytes ?? 0;
  const numbers = card === null ? null : numbersOf(core, card, { requestedBytes: denied.requestedBytes ?? 0, needBytes, floorBytes, ownHoldBytes });
  const couldHaveBytes = card === null || available(core, card).freeBytes === null ? null : withoutHeadroom((numbers?.availableBytes ?? 0) - floorBytes);
  const elsewhere = card === null || denied.elsewhereBytes === undefined ? null : largerCards(core, card, denied.elsewhereBytes).join(', ');
  const text = elsewhere === null || elsewhere === '' ? denied.text : `${denied.text}; ${elsewhere} could hold it`;
  count(core, 'denials');
  count(core, `denials.${denied.code}`);
  const id = explain(core, {
    verdict: denied.verdict ?? 'denied',
    text,
    generation: denied.generation, request: denied.request, model: denied.model,
    device: card?.device ?? null, class: denied.class, numbers,
    ...(denied.victims === undefined ? {} : { victims: denied.victims }),
    ...(denied.arrivedUs === undefined ? {} : { arrivedUs: denied.arrivedUs }),
    unverified: card !== null && available(core, card).unverified,
  });
  noteAnswered(core, denied.generation, denied.request);
  noteGang(core, denied);
  emit(core, {
    type: 'deny',
    generation: denied.generation, request: denied.request,
    code: denied.code, details: elsewhere === null ? denied.details : { ...denied.details, elsewhere },
    numbers, couldHaveBytes,
    roomElsewhere: card === null || card === core.host || needBytes === 0 ? [] : roomElsewhere(core, card, needBytes),
    retryAfterMs: denied.retryAfterMs ?? null,
    explain: id,
  });
  publish(core, 'denied', { generation: denied.generation, request: denied.request, model: denied.model, device: card?.device ?? null, code: denied.code, why: text, elsewhere });
}

/** The others of its gang are refused for the same reason, when it ends. */
function noteGang(core: Core, { generation, request, code, details, text }: Denied): void {
  const waiter = core.waiters.get(waiterKey(generation, request));
  const gang = waiter === undefined || waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  if (gang !== undefined) gang.refusal ??= { code, details, text };
}

/** Other cards on which the whole request would fit now, without evicting. */
function roomElsewhere(core: Core, card: Card, needBytes: number): string[] {
  const elsewhere: string[] = [];
  for (const other of core.cards.values()) {
    if (other === card || other.kind === 'cpu' || other.lost !== null) continue;
    const free = available(core, other).freeBytes;
    if (free !== null && free - other.holdBytes >= needBytes) elsewhere.push(other.device);
  }
  return elsewhere;
}

/** Other cards that are large enough for it, whatever is there now. */
function largerCards(core: Core, card: Card, bytes: number): string[] {
  return [...core.cards.values()].filter((other) => other !== card && other.kind !== 'cpu' && other.lost === null && capacityBytes(other) >= bytes).map(({ device }) => device).sort();
}

/** Why a card cannot give now, for a person. What is held for the request itself is available to it. */
export function shortageText(core: Core, card: Card, needBytes: number, ownHoldBytes = 0): string {
  if (card.closedBy.size > 0) return closedText(card);
  const free = available(core, card).freeBytes;
  if (free === null) return `free memory of ${card.device} is unknown`;
  const othersBytes = card.holdBytes - ownHoldBytes;
  const foreign = card.foreignBytes === null || card.foreignBytes === 0 ? '' : `, ${inWords(card.foreignBytes)} used by processes we do not own`;
  // Less than the ledger alone would give: what the card itself reads decides.
  const read = free < ledgerTermBytes(card) && card.sample !== null ? `; ${card === core.host ? 'the system' : 'the card'} reads ${inWords(card.sample.usedBytes)} used` : '';
  return `${inWords(needBytes)} needed, ${inWords(Math.max(0, free - othersBytes))} available (${inWords(card.chargedBytes)} charged, ${inWords(othersBytes)} held for others${foreign}${read})`;
}
