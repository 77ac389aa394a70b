/**
 * The independent auditor: follows the log of events and effects and the world's
 * truth, and says which rule a decision broke. It shares no arithmetic and no
 * state with the core; where the design leaves a choice it takes the reading
 * that favours the core, so that what it reports is a fault.
 */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { OutOfMemory } from '../../../src/scenarios/world/context.js';
import { believed } from './believed-readings.js';
import { Book, type BookOptions } from './book.js';
import type { Check, Truth, Violation } from './check.js';
import { followEffect } from './follow-effects.js';
import { followEvent, noteFailure } from './follow-events.js';
import { dropClosed, followMemoryAnswer, followMemoryEffect, followMemoryEvent } from './follow-memory.js';
import { requestKey } from './records.js';
import { checkAnswer, checkOpenRequests, isAnswer } from './rules-answers.js';
import { checkGangs } from './rules-gangs.js';
import { checkGrant, checkLoaded } from './rules-grants.js';
import { checkGrowth, checkMemoryGrant, checkMemoryMove, checkMemoryShort, checkTrim } from './rules-memory.js';
import { checkOom } from './rules-oom.js';
import { checkEnding, checkPlaced, checkSpawn, checkSpilled, checkStray, checkTerminate } from './rules-processes.js';
import { checkRecords } from './rules-records.js';
import { checkGivenUp } from './rules-returns.js';
import { checkDamped, checkThrash, followThrash } from './rules-thrash.js';
import { checkWaits } from './rules-waits.js';
import { checkCancel, checkMove } from './rules-victims.js';
import { checkYielded, noteStrangers } from './rules-yield.js';
import { strangersThen } from './strangers.js';

export class Auditor {
  readonly book: Book;
  readonly violations: Violation[] = [];
  readonly counters = { grants: 0, evictions: 0, denied: 0, placed: 0, spawned: 0, terminated: 0, thrashes: 0 };

  constructor(options: BookOptions, private readonly truth: Truth) {
    this.book = new Book(options);
  }

  observe(happened: CoreEvent, effects: readonly Effect[]): void {
    const event = believed(this.book, happened);
    // The first answer to a command counts; after that it is no news.
    if (event.type === 'command_answered') followMemoryAnswer(this.book, event);
    followEvent(this.book, event);
    followMemoryEvent(this.book, event);
    dropClosed(this.book);
    if (event.type === 'sampled') this.noteUnclear(event);
    if (event.type === 'sampled') noteStrangers(this.book, this.truth, event);
    const check = this.checkOf(event, effects);
    checkRecords(check);
    checkGangs(check);
    for (const effect of effects) {
      this.judge(check, effect);
      this.count(effect);
      followEffect(check, effect);
      followMemoryEffect(check, effect);
      followThrash(check, effect);
    }
    for (const key of check.spawnFailures) noteFailure(this.book, this.book.loadBackOffs, key, 'anybody');
    checkOpenRequests(check);
    checkEnding(check);
    if (event.type === 'ticked') {
      checkGivenUp(check);
      checkThrash(check);
      checkWaits(check);
    }
    checkGrowth(check);
  }

  /** The broker was killed, and another starts. */
  restart(): void {
    this.book.restart();
  }

  private noteUnclear(event: Extract<CoreEvent, { type: 'sampled' }>): void {
    const card = this.book.cards.get(event.device);
    const isUnclear = event.processes === null || (this.truth.at(event.device, event.takenAtUs)?.hiddenBytes ?? 0) > 0 || (strangersThen(this.book, this.truth, event.device, event.takenAtUs) ?? 0) > 0;
    if (card === undefined) return;
    card.isUnclear = isUnclear;
    if (isUnclear) card.unclearAtUs = event.atUs;
  }

  private blame(record: ExplainRecord): void {
    for (const lease of this.book.leasesOf(record.generation)) if (record.model === null || record.model === lease.model) lease.blamed = true;
  }

  /** Quarantined: what is still there, the driver's figure for its process tells, where there is one. */
  private leaveToReading(record: ExplainRecord): void {
    for (const lease of this.book.leasesOf(record.generation)) {
      if (record.model !== null && record.model !== lease.model) continue;
      lease.isQuarantined = true;
      lease.isLeftToReading = this.book.cards.get(lease.device)?.confirms === 'process';
    }
  }

  /** For rules that look at the whole ledger between steps. */
  checkNow(event: CoreEvent, effects: readonly Effect[]): Check {
    return this.checkOf(event, effects);
  }

  truthAt(device: string, takenAtUs: number): ReturnType<Truth['at']> {
    return this.truth.at(device, takenAtUs);
  }

  /** An honest load within its lease is never refused by the card, unless strangers or liars took the room. */
  observeOom(oom: OutOfMemory): void {
    checkOom({ book: this.book, truth: this.truth, broken: (rule, text) => this.violations.push({ rule, text }) }, oom);
  }

  /** Nor is a process killed for want of memory within what it was promised. */
  observeMemoryShort(generation: string, bytes: number): void {
    checkMemoryShort({ book: this.book, truth: this.truth, broken: (rule, text) => this.violations.push({ rule, text }) }, generation, bytes);
  }

  private judge(check: Check, effect: Effect): void {
    if (isAnswer(effect)) checkAnswer(check, effect);
    switch (effect.type) {
      case 'grant':
        checkGrant(check, effect);
        checkMemoryGrant(check, effect);
        return;
      case 'placed':
        checkPlaced(check, effect);
        return;
      case 'spawn':
        checkSpawn(check, effect);
        return;
      case 'terminate':
        checkTerminate(check, effect);
        return;
      case 'move':
        checkMove(check, effect);
        checkDamped(check, effect);
        checkMemoryMove(check, effect);
        return;
      case 'trim_host':
        checkTrim(check, effect);
        return;
      case 'cancel_command':
        checkCancel(check, effect);
        return;
      case 'publish':
        if (effect.name === 'overshoot' && effect.data['lease'] === null) (effect.data['where'] === 'host' ? checkSpilled : checkStray)(check, String(effect.data['generation']), String(effect.data['device']));
        if (effect.name === 'yielded') checkYielded(check, String(effect.data['device']));
        if (effect.name === 'loaded') checkLoaded(check, String(effect.data['lease']), Number(effect.data['chargedBytes']));
        return;
      default:
    }
  }

  private count(effect: Effect): void {
    const { counters } = this;
    if (effect.type === 'grant') counters.grants++;
    else if (effect.type === 'move') counters.evictions++;
    else if (effect.type === 'deny') counters.denied++;
    else if (effect.type === 'placed') counters.placed++;
    else if (effect.type === 'spawn') counters.spawned++;
    else if (effect.type === 'terminate') counters.terminated++;
    else if (effect.type === 'publish' && effect.name === 'thrashing') counters.thrashes++;
  }

  private checkOf(event: CoreEvent, effects: readonly Effect[]): Check {
    const records = new Map<string, ExplainRecord>();
    const beneficiaries = new Map<string, string | null>();
    for (const effect of effects) {
      if (effect.type !== 'explain') continue;
      const { record } = effect;
      records.set(record.id, record);
      if (record.verdict === 'quarantined') this.leaveToReading(record);
      if (record.verdict === 'overshoot' || record.verdict === 'escalated') this.blame(record);
      if (record.verdict !== 'evicting' && record.verdict !== 'escalated') continue;
      const key = record.request === null ? null : requestKey(record.generation, record.request);
      // Whoever gives a copy back does not leave its card.
      for (const victim of record.victims) if (victim.lease !== null && victim.passedOver === null && victim.action !== 'trim') beneficiaries.set(victim.lease, key);
    }
    const broken = (rule: string, text: string): void => {
      this.violations.push({ rule, text });
    };
    return { book: this.book, truth: this.truth, event, effects, records, beneficiaries, spawnFailures: new Set(), broken };
  }
}
