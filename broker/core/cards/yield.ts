/**
 * Giving way to strangers, where the operator wants that: when programs that are not ours take more of a card and what
 * is left free falls below what is to be kept free for them, idle models are put away by the policy that serves
 * requests, until so much is free again.
 *
 * 1. Only a reading that tells strangers from ours is believed: by process, not by the total alone.
 * 2. Two of them in a row must say the same: who takes and leaves at once moves nobody.
 * 3. It is their growth that presses. What we are granted ourselves meanwhile, by ordinary demand, is no pressure, and
 *    what was granted after they had grown is not put away for it: their coming moves a model once.
 * 4. What they have had in one pressure is no news for a while after: who leaves and comes back is given way to again
 *    when that while is over.
 */
import { leavingBytes, numbersOf, sampleTermBytes } from '../ledger/available.js';
import { inMs, msSince } from '../clock.js';
import { carryOutPlan } from '../eviction/carry-out.js';
import { explainVictims, planEverything, planVictims } from '../eviction/plan.js';
import type { Seeker } from '../eviction/victim.js';
import type { CoreEvent } from '../events.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Yielding } from '../state.js';
import type { YieldView } from '../view.js';
import { areStrangers } from './strangers.js';

/** As the operator wants it for the card; what was seen before is kept. */
export function yieldingOf({ yieldFreeBytes = null }: Pick<Extract<CoreEvent, { type: 'card_added' }>, 'yieldFreeBytes'>, before: Yielding | null): Yielding | null {
  if (yieldFreeBytes === null) return null;
  return {
    calmBytes: null, lowBytes: Infinity, grown: null, doubted: null, noticed: false, pressed: null, restUntilUs: 0, told: new Set(),
    ...before, freeBytes: yieldFreeBytes,
  };
}

/** The card has been read. */
export function yieldToStrangers(core: Core, card: Card): void {
  const { yielding } = card;
  if (yielding === null || card.closedBy.size > 0) return;
  const blind = blindness(core, card);
  if (blind !== null) {
    tellBlind(core, card, yielding, blind);
    return;
  }
  const freeBytes = sampleTermBytes(core, card);
  // Of what just ended nobody knows yet whether it is gone; a jump between two rungs is nobody's growth (R29).
  if (freeBytes === null || card.sameTruthCount < 2 || !areStrangers(core, card)) {
    doubt(core, yielding, strangersOf(card));
    return;
  }
  const lackingBytes = yielding.freeBytes - freeBytes;
  follow(core, yielding, strangersOf(card), lackingBytes > 0);
  if (isPressed(core, card, yielding, lackingBytes > 0)) makeRoom(core, card, yielding, lackingBytes);
}

/** No reading came. */
export function tellUnread(core: Core, card: Card): void {
  if (card.yielding === null) return;
  const blind = blindness(core, card);
  if (blind !== null) tellBlind(core, card, card.yielding, blind);
}

function strangersOf(card: Card): number {
  return card.strangersBytes ?? 0;
}

/** They may have so many, or others may: should they prove to be theirs, they were so from here on. */
function doubt(core: Core, yielding: Yielding, bytes: number): void {
  const { doubted } = yielding;
  if (doubted === null || bytes > doubted.toBytes + core.options.limits.measureToleranceBytes) yielding.doubted = { atUs: core.attendedUs, toBytes: bytes };
  else if (bytes < doubted.toBytes) yielding.doubted = { atUs: doubted.atUs, toBytes: bytes };
}

/** What strangers had of late: their least, and their latest growth from there. */
function follow(core: Core, yielding: Yielding, strangersBytes: number, isShort: boolean): void {
  const { measureToleranceBytes } = core.options.limits;
  yielding.lowBytes = Math.min(yielding.lowBytes, strangersBytes);
  if (yielding.pressed === null && core.attendedUs >= yielding.restUntilUs) {
    // What leaves enough free is no news.
    if (!isShort) yielding.lowBytes = strangersBytes;
    yielding.calmBytes = Math.min(yielding.calmBytes === null || !isShort ? Infinity : yielding.calmBytes, yielding.lowBytes);
  }
  if (strangersBytes <= yielding.lowBytes + measureToleranceBytes) yielding.grown = null;
  else if (yielding.grown === null || strangersBytes > yielding.grown.toBytes + measureToleranceBytes) {
    const { doubted } = yielding;
    const wasThere = doubted !== null && strangersBytes <= doubted.toBytes + measureToleranceBytes;
    yielding.grown = { atUs: wasThere ? doubted.atUs : core.attendedUs, toBytes: strangersBytes };
  }
  yielding.doubted = null;
}

/** Begins with the second reading that shows it, and ends when enough is free or they have left. */
function isPressed(core: Core, card: Card, yielding: Yielding, isShort: boolean): boolean {
  const calmBytes = yielding.calmBytes ?? Infinity;
  const strangersBytes = strangersOf(card);
  const isNews = isShort && strangersBytes > calmBytes + core.options.limits.measureToleranceBytes;
  if (yielding.pressed !== null && !isNews) {
    yielding.calmBytes = yielding.pressed.mostBytes;
    yielding.lowBytes = strangersBytes;
    yielding.restUntilUs = inMs(core, core.options.limits.yieldRestMs);
    yielding.pressed = null;
  } else if (isNews && yielding.noticed) {
    yielding.pressed ??= { sinceUs: core.attendedUs, mostBytes: 0, toldNone: false };
    yielding.pressed.mostBytes = Math.max(yielding.pressed.mostBytes, strangersBytes);
  }
  yielding.noticed = isNews;
  return yielding.pressed !== null;
}

/** Puts away what is idle: the cheapest set that suffices, else all of it. */
function makeRoom(core: Core, card: Card, yielding: Yielding, lackingBytes: number): void {
  if (card.loadToken !== null || yielding.grown === null) return;
  const shortBytes = lackingBytes - leavingBytes(core, card).firmBytes;
  if (shortBytes <= 0) return;
  // Nobody is outranked for a stranger's sake.
  const seeker: Seeker = { generation: '', model: '', class: 'background', placing: false, failingSinceUs: null, overdue: null, untilUs: yielding.grown.atUs };
  const plan = planVictims(core, card, seeker, shortBytes, false) ?? planEverything(core, card, seeker);
  if (plan.victims.length === 0) {
    tellNone(core, card, yielding, shortBytes);
    return;
  }
  carryOutPlan(core, card, plan, shortBytes, {
    cause: 'yield', waiterSinceAtUs: null, beneficiary: null, reason: `room for other programs on ${card.device}`,
    tell: (chosenText) => {
      count(core, 'yields');
      publish(core, 'yielded', {
        device: card.device, strangersBytes: strangersOf(card), beforeBytes: yielding.calmBytes ?? 0, shortBytes, victims: plan.victims.length,
        pids: card.strangers.length === 0 ? null : card.strangers.map(({ pid }) => pid).join(' '),
      });
      explain(core, {
        verdict: 'evicting', generation: '', device: card.device,
        text: `${pressureText(card, yielding)}; ${inWords(shortBytes)} more are to be free for them: ${chosenText}`,
        numbers: numbersOf(core, card, { requestedBytes: yielding.freeBytes, needBytes: yielding.freeBytes, floorBytes: 0, ownHoldBytes: 0 }),
        victims: explainVictims(core, card, seeker, plan),
      });
    },
  });
  core.dirty.add(card.device);
}

/** Said once a pressure: what is in use is left alone, and goes when it has become idle. */
function tellNone(core: Core, card: Card, yielding: Yielding, shortBytes: number): void {
  if (yielding.pressed === null || yielding.pressed.toldNone) return;
  yielding.pressed.toldNone = true;
  explain(core, { verdict: 'waiting', text: `${pressureText(card, yielding)}; ${inWords(shortBytes)} more are to be free for them, and nothing idle is left to put away`, generation: '', device: card.device });
}

/** Who presses, by bytes and, where they are known, by pids. */
function pressureText(card: Card, { calmBytes }: Yielding): string {
  const bytes = strangersOf(card);
  const named = card.strangers.map(({ pid, usedBytes }) => `pid ${String(pid)} with ${inWords(usedBytes)}`).join(', ');
  return `other programs have ${inWords(bytes)} of ${card.device}${named === '' ? '' : ` (${named})`}, ${inWords(bytes - (calmBytes ?? 0))} more than before`;
}

/** Why no reading of this card tells strangers' bytes from ours; null: one does. */
function blindness(core: Core, card: Card): string | null {
  if (card.confirms !== 'process') return 'its driver does not tell whose the bytes in use are';
  if (card.missing !== null && sampleTermBytes(core, card) === null) return 'it cannot be read';
  if (card.sample !== null && card.strangersBytes === null) return `${card.sample.truth} tells the total alone, not whose the bytes in use are`;
  return null;
}

/** Said once for each reason. */
function tellBlind(core: Core, card: Card, yielding: Yielding, blind: string): void {
  yielding.noticed = false;
  if (yielding.told.has(blind)) return;
  yielding.told.add(blind);
  explain(core, { verdict: 'waiting', text: `${card.device} cannot give way to other programs: ${blind}`, generation: '', device: card.device, unverified: true });
}

export function yieldView(core: Core, card: Card): YieldView | null {
  const { yielding } = card;
  if (yielding === null) return null;
  return {
    freeBytes: yielding.freeBytes, blind: blindness(core, card),
    pressed: yielding.pressed === null ? null : { sinceMs: msSince(core, yielding.pressed.sinceUs), strangersBytes: strangersOf(card), strangers: card.strangers },
  };
}
