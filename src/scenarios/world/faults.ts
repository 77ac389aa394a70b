/**
 * How often what goes wrong. Names in `…Ms` alone are mean times between such
 * events (0: never); the others are probabilities, or the largest value drawn.
 */
import { honestWithMemory, type MemoryBehaviour } from './memory-knobs.js';
import type { Prng } from './prng.js';

export interface Faults {
  // Cards and probes
  readonly freeLagMsMax: number;
  readonly exitLagMsMax: number;
  /** Bytes a process keeps after its first load until it exits. */
  readonly residualBytesMax: number;
  readonly foreignMs: number;
  readonly foreignShareMax: number;
  readonly probeFails: number;
  readonly probeHangs: number;
  readonly probeLateMsMax: number;
  /** A reading that cannot be, or is less than is there. */
  readonly probeWild: number;
  /** The probe of a card is away for up to ten seconds. */
  readonly probeOutageMs: number;
  /** A lower rung answers for up to ten seconds: the total alone, no figures by process. */
  readonly lowerRungMs: number;
  /** A card is gone for up to half a minute. */
  readonly cardLostMs: number;
  // Processes
  readonly crashMs: number;
  readonly stallMs: number;
  readonly breakMs: number;
  /** A worker is told by somebody else to end, and says so. */
  readonly leaveMs: number;
  /** The broker itself is killed, and started anew a while later. */
  readonly restartMs: number;
  /** A process that has lost its broker does not look for one again. */
  readonly neverReturns: number;
  /** A process that is back with a broker names the lease of another as its own. */
  readonly claimsOthers: number;
  /** A connection breaks with a grant on it. */
  readonly breaksAtGrant: number;
  readonly spawnFails: number;
  readonly spawnHangs: number;
  readonly loadFails: number;
  /** A load begins and never ends, though its process lives on. */
  readonly loadHangs: number;
  /** A failed load leaves part of it on the card until the exit. */
  readonly leaksOnFailure: number;
  /** Answers done first, frees afterwards. */
  readonly ackEarly: number;
  /** Answers done and frees nothing until it exits. */
  readonly ackLies: number;
  readonly freesShort: number;
  /** Takes bytes with its first load on a card that it was not given. */
  readonly misplaces: number;
  /** Takes more than its lease, and reports it. */
  readonly overAllocates: number;
  readonly ignoresCommands: number;
  readonly answersLate: number;
  readonly answersTwice: number;
  /** Answers ids and leases that are not its own. */
  readonly answersWrong: number;
  readonly slowToBegin: number;
  /** A grant reaches the process and is lost in it. */
  readonly losesGrants: number;
  readonly ignoresSigterm: number;
  readonly unkillable: number;
  /** Messages of a dead generation arrive after its exit. */
  readonly staleMessages: number;
  // The broker's own machine
  readonly loopStallMs: number;
  readonly loopStallMsMax: number;
  readonly clockJumpMs: number;
  /** The broker's clock is set back, by up to half a minute. */
  readonly clockBackMs: number;
  readonly wireDelayMsMax: number;
}

export const noFaults: Faults = {
  freeLagMsMax: 0, exitLagMsMax: 0, residualBytesMax: 0, foreignMs: 0, foreignShareMax: 0,
  probeFails: 0, probeHangs: 0, probeLateMsMax: 0, probeWild: 0, probeOutageMs: 0, lowerRungMs: 0, cardLostMs: 0,
  crashMs: 0, stallMs: 0, breakMs: 0, leaveMs: 0, restartMs: 0, neverReturns: 0, claimsOthers: 0, breaksAtGrant: 0, spawnFails: 0, spawnHangs: 0, loadFails: 0, loadHangs: 0, leaksOnFailure: 0,
  ackEarly: 0, ackLies: 0, freesShort: 0, misplaces: 0, overAllocates: 0, ignoresCommands: 0,
  answersLate: 0, answersTwice: 0, answersWrong: 0, slowToBegin: 0, losesGrants: 0,
  ignoresSigterm: 0, unkillable: 0, staleMessages: 0,
  loopStallMs: 0, loopStallMsMax: 0, clockJumpMs: 0, clockBackMs: 0, wireDelayMsMax: 2,
};

/** What one process is like for all its life. */
export interface Behaviour extends MemoryBehaviour {
  /** Factor on what it truly takes, above 1 when it over-allocates. */
  readonly takesFactor: number;
  readonly ackEarlyMs: number;
  readonly ackLies: boolean;
  /** What a liar frees all the same. */
  readonly liesFreeShare: number;
  readonly freesShort: boolean;
  readonly ignoresCommands: boolean;
  readonly answersLateMs: number;
  readonly answersTwice: boolean;
  readonly answersWrong: boolean;
  readonly beginsLateMs: number;
  readonly losesGrants: number;
  readonly ignoresSigterm: boolean;
  readonly unkillableMs: number;
  readonly leaksOnFailure: boolean;
  readonly residualBytes: number;
  /** Taken with the first load on a card that it does not have. */
  readonly misplacedBytes: number;
  readonly loadFails: number;
  readonly loadHangs: number;
}

export const honest: Behaviour = {
  takesFactor: 1, ackEarlyMs: 0, ackLies: false, liesFreeShare: 0, freesShort: false, ignoresCommands: false, answersLateMs: 0,
  answersTwice: false, answersWrong: false, beginsLateMs: 0, losesGrants: 0, ignoresSigterm: false, unkillableMs: 0,
  leaksOnFailure: false, residualBytes: 0, misplacedBytes: 0, loadFails: 0, loadHangs: 0, ...honestWithMemory,
};

export function behaviourOf(faults: Faults, random: Prng): Behaviour {
  return {
    takesFactor: random.chance(faults.overAllocates) ? random.pick([1.15, 1.4, 1.87]) : 1,
    ackEarlyMs: random.chance(faults.ackEarly) ? random.int(50, 3_000) : 0,
    ackLies: random.chance(faults.ackLies),
    liesFreeShare: random.pick([0, 0.3]),
    freesShort: random.chance(faults.freesShort),
    ignoresCommands: random.chance(faults.ignoresCommands),
    answersLateMs: random.chance(faults.answersLate) ? random.int(100, 8_000) : 0,
    answersTwice: random.chance(faults.answersTwice),
    answersWrong: random.chance(faults.answersWrong),
    beginsLateMs: random.chance(faults.slowToBegin) ? random.int(500, 20_000) : 0,
    losesGrants: random.chance(faults.losesGrants) ? 0.3 : 0,
    ignoresSigterm: random.chance(faults.ignoresSigterm),
    unkillableMs: random.chance(faults.unkillable) ? random.int(500, 30_000) : 0,
    leaksOnFailure: random.chance(faults.leaksOnFailure),
    residualBytes: random.chance(0.5) ? random.int(0, faults.residualBytesMax) : 0,
    misplacedBytes: random.chance(faults.misplaces) ? random.int(100, 2_000) * 1_048_576 : 0,
    loadFails: faults.loadFails,
    loadHangs: faults.loadHangs,
    ...honestWithMemory,
  };
}
