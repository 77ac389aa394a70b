/** The cards on which a placement costs least in evictions; for several at once, together. */
import { available, floorNeededBytes, leavingBytes, ledgerTermBytes, strangersBytes } from '../ledger/available.js';
import { backingOff, failingSinceUs } from './backoff.js';
import { leavingHereBytes, noneLeaving, planVictims, type Leaving, type Plan } from '../eviction/plan.js';
import type { Seeker } from '../eviction/victim.js';
import { withHeadroom } from '../ledger/headroom.js';
import { capacityBytes } from '../ledger/need.js';
import { workerWithRoom } from './placement.js';
import { queueLength } from './queue.js';
import type { Card, Core, PlaceWaiter } from '../state.js';
import { cheapestSet } from '../eviction/victim-policy.js';

export interface Placing {
  readonly generation: string;
  readonly model: string;
  readonly engine: string;
  readonly class: PlaceWaiter['class'];
  /** What its requester knows of its size, over all cards; 0: nothing. */
  readonly requestedBytes: number;
  /** Marked by the operator as one that may have a card to itself without the headroom. */
  readonly exclusive: boolean;
}

/** Without headroom, by the place of a card among those of a set. */
type Shares = readonly number[];

/** Cards whose sets are all looked at, the cheapest by themselves first. */
const comparedMax = 6;

interface Choice {
  readonly card: Card;
  readonly costMs: number;
  /** What is free there beyond its need; negative: what victims must free. */
  readonly spareBytes: number;
}

interface ChosenSet {
  readonly cards: readonly Card[];
  readonly costMs: number;
  readonly spareBytes: number;
}

/** The `count` cards of least eviction cost, in the order of their UUIDs; null when the model could never fit on so many, by what its requester says and what was asked for it before. */
export function chooseCards(core: Core, placing: Placing, cards: readonly Card[], count: number): readonly Card[] | null {
  const asked = core.models.get(placing.model)?.askedBytes ?? [];
  return chooseFor(core, placing, cards, wordOf(placing, count).map((bytes, place) => Math.max(bytes, (asked.length === count ? asked[place] : null) ?? 0)));
}

/** By the word of the requester alone. */
export function chooseByWord(core: Core, placing: Placing, cards: readonly Card[], count: number): readonly Card[] | null {
  return chooseFor(core, placing, cards, wordOf(placing, count));
}

function wordOf({ requestedBytes }: Placing, count: number): number[] {
  return Array<number>(count).fill(Math.ceil(requestedBytes / count));
}

function chooseFor(core: Core, placing: Placing, cards: readonly Card[], shares: Shares): readonly Card[] | null {
  const smallestBytes = Math.min(...shares);
  if (shares.length === 1) {
    const [best] = ranked(core, placing, cards, smallestBytes, false);
    return best === undefined ? null : [best.card];
  }
  let best: ChosenSet | null = null;
  // A process computes with cards of one make; and it can see one slice of a card (MIG) at most.
  for (const kind of new Set(cards.map((card) => card.kind))) {
    const alike = cards.filter((card) => card.kind === kind && card.kind !== 'cpu' && !card.device.startsWith('MIG-'));
    const choices = ranked(core, placing, alike, smallestBytes, true).slice(0, comparedMax);
    for (const set of subsets(choices, shares.length)) best = better(best, judgeSet(core, placing, set.map(({ card }) => card), shares));
  }
  return best === null ? null : best.cards;
}

/** Those on which so much could ever fit, the cheapest first. */
function ranked(core: Core, placing: Placing, cards: readonly Card[], bytes: number, isGang: boolean): Choice[] {
  const found: Choice[] = [];
  for (const card of cards) {
    const choice = judgeCard(core, placing, card, bytes, isGang);
    if (choice !== null) found.push(choice);
  }
  return found.sort((a, b) => a.costMs - b.costMs || b.spareBytes - a.spareBytes);
}

/** Cost of a placement there: 0 when it fits, the victims' cost when it must evict, without bound when it must wait. */
function judgeCard(core: Core, placing: Placing, card: Card, bytes: number, isGang: boolean): Choice | null {
  const roomy = isGang ? null : workerWithRoom(core, [card.device], placing.engine);
  const floorBytes = roomy !== null ? 0 : floorNeededBytes(core, card, '', placing.engine);
  const needBytes = card.kind === 'cpu' ? floorBytes : neededBytes(card, floorBytes, bytes, placing.exclusive);
  if (needBytes > capacityBytes(card)) return null;
  const free = lastFreeBytes(core, card);
  if (free === null) return { card, spareBytes: -needBytes, costMs: Number.MAX_SAFE_INTEGER };
  const queuedBytes = queueLength(card) > 0 ? card.holdBytes : 0;
  const spareBytes = free - queuedBytes + leavingBytes(core, card).firmBytes - needBytes;
  if (card.closedBy.size > 0 || backingOff(core, placing.model, card.device) !== null) return { card, spareBytes, costMs: Number.MAX_VALUE };
  if (spareBytes >= 0) return { card, spareBytes, costMs: 0 };
  return { card, spareBytes, costMs: plan(core, placing, card, -spareBytes, noneLeaving)?.costMs ?? Number.MAX_SAFE_INTEGER };
}

/** With the headroom; without it for a model that the operator marked, where that alone lets it fit the empty card. */
function neededBytes(card: Card, floorBytes: number, bytes: number, exclusive: boolean): number {
  const wholeBytes = floorBytes + withHeadroom(bytes);
  return exclusive && wholeBytes > capacityBytes(card) ? floorBytes + bytes : wholeBytes;
}

/** By an old reading where there is no new one: this only chooses, and what is chosen is read before it is granted. Null: it cannot be read. */
function lastFreeBytes(core: Core, card: Card): number | null {
  const { freeBytes } = available(core, card);
  if (freeBytes !== null) return freeBytes;
  if (card.missing !== null) return null;
  return ledgerTermBytes(card) - (card.sample === null ? 0 : strangersBytes(card));
}

function plan(core: Core, placing: Placing, card: Card, shortBytes: number, leaving: Leaving): Plan | null {
  const seeker: Seeker = { generation: placing.generation, model: placing.model, class: placing.class, placing: true, failingSinceUs: failingSinceUs(core, placing.model, card.device), overdue: null };
  return planVictims(core, card, seeker, shortBytes, false, cheapestSet, leaving);
}

/** What leaves one of the cards for it and is on another as well costs once, and frees on both. Null: its shares, in the order of the cards, could never fit. */
function judgeSet(core: Core, placing: Placing, cards: readonly Card[], shares: Shares): ChosenSet | null {
  const sorted = [...cards].sort((a, b) => (a.device < b.device ? -1 : 1));
  const inOrder = sorted.map((card, place) => judgeCard(core, placing, card, shares[place] ?? 0, true)).filter((choice) => choice !== null);
  if (inOrder.length < shares.length) return null;
  const leaving = { gangs: new Set<string>(), generations: new Set<string>() };
  let costMs = 0;
  for (const { card, spareBytes, costMs: aloneMs } of inOrder) {
    if (aloneMs === Number.MAX_VALUE) costMs = Number.MAX_VALUE;
    const shortBytes = -spareBytes - leavingHereBytes(core, card, leaving);
    if (shortBytes <= 0) continue;
    const found = plan(core, placing, card, shortBytes, leaving);
    costMs += found?.costMs ?? Number.MAX_SAFE_INTEGER;
    for (const { lease, generation } of found?.victims ?? []) {
      if (lease === null) leaving.generations.add(generation);
      else if (lease.gang !== null) leaving.gangs.add(lease.gang);
    }
  }
  return { cards: inOrder.map(({ card }) => card), costMs, spareBytes: Math.min(...inOrder.map((choice) => choice.spareBytes)) };
}

function better(a: ChosenSet | null, b: ChosenSet | null): ChosenSet | null {
  if (b === null) return a;
  if (a === null || b.costMs < a.costMs) return b;
  return b.costMs === a.costMs && b.spareBytes > a.spareBytes ? b : a;
}

function* subsets<T>(items: readonly T[], count: number): Generator<readonly T[]> {
  if (count === 0) {
    yield [];
    return;
  }
  for (const [index, item] of items.entries()) {
    if (items.length - index < count) return;
    for (const rest of subsets(items.slice(index + 1), count - 1)) yield [item, ...rest];
  }
}
