/** What a seed decides before the run: the cards, the models, the demand, and which faults there are. */
import { classPolicies, defaultLimits, type ClassPolicy, type LeasePart, type Limits, type RequestClass } from '../../../protocol/index.js';
import type { CardDescription } from './card.js';
import { noFaults, type Faults } from './faults.js';
import { engineMemoryBytes, memoryKnobs, modelMemory, type MemoryKnobs, type ModelMemory } from './memory-knobs.js';
import { Prng } from './prng.js';

export const gib = 1024 ** 3;
export const mib = 1024 ** 2;

export interface ModelKnobs {
  readonly key: string;
  readonly engine: string;
  /** What the worker asks for. */
  readonly parts: readonly LeasePart[];
  readonly peakBytes: number;
  /** What it truly takes: at the top of a load, and after it. */
  readonly truePeakBytes: number;
  readonly trueParts: readonly LeasePart[];
  readonly loadMs: number;
  /** How long a park or an unload takes. */
  readonly moveMs: number;
  readonly callMs: number;
  /** How often a call asks for a longer context than declared, and for a context of its own. */
  readonly grows: number;
  readonly addsContexts: number;
  readonly parallel: number;
  /** Cards that it is spread over, and what of it each has, in the order of their UUIDs. */
  readonly cards: number;
  readonly shares: readonly number[];
  readonly parkable: boolean;
  readonly ttlMs: number | null;
  readonly pinned: boolean;
  readonly class: RequestClass;
  /** Its load fails this often even without faults (a broken file). */
  readonly loadFails: number;
  /** What it takes of the machine's memory; null: it says nothing of it, and takes nothing. */
  readonly memory: ModelMemory | null;
  /** Which of several things of this name in one process; left out: the only one. */
  readonly copy?: number;
}

export interface EngineKnobs {
  readonly name: string;
  readonly modelsPerWorker: number;
  readonly partial: boolean;
  readonly profilesFreeMemory: boolean;
  readonly floorBytes: number;
  readonly spawnMs: number;
  /** Of the machine's memory, before any model. */
  readonly memoryBytes: number;
}

export interface Knobs {
  readonly seed: number;
  readonly cards: readonly CardDescription[];
  readonly engines: readonly EngineKnobs[];
  readonly models: readonly ModelKnobs[];
  readonly clients: number;
  readonly holders: number;
  /** Mean time between calls of clients, and between decisions of a holder. */
  readonly arrivalMs: number;
  readonly zipf: number;
  /** Mean time between bursts of requests of one peer; 0: none. */
  readonly floodMs: number;
  /** How often a holder wants a second thing of the same name at the same moment. */
  readonly twins: number;
  readonly deadlineMs: readonly [number, number];
  readonly limits: Limits;
  readonly classPolicies: Readonly<Record<RequestClass, ClassPolicy>>;
  readonly allowLedgerOnly: boolean;
  readonly faults: Faults;
  /** The machine's memory; null: it is not leased. */
  readonly memory: MemoryKnobs | null;
}

const classes: readonly RequestClass[] = ['interactive', 'normal', 'background'];

/** The world of a seed. The faults are a subset, so that one fault does not hide another (swarm testing). */
export function knobsOf(seed: number): Knobs {
  const random = new Prng(seed, 'knobs');
  const yields = new Prng(seed, 'yields');
  const cards = someYield(yields, someSpill(new Prng(seed, 'spills'), cardKnobs(random)));
  const engines = engineKnobs(random);
  const smallestBytes = Math.min(...cards.map((card) => card.totalBytes));
  const models = Array.from({ length: random.int(1, 10) }, (_, index) => modelKnobs(random, index, engines, smallestBytes));
  const faults = random.chance(0.2) ? noFaults : faultKnobs(random);
  const wide = wideKnobs(new Prng(seed, 'gangs'), cards, models);
  const wideFaults = faults === noFaults ? {} : cardFaultKnobs(new Prng(seed, 'card-faults'), cards);
  const hangs = new Prng(seed, 'hangs');
  const shares = new Prng(seed, 'shares');
  const isTight = shares.chance(0.12);
  const twins = new Prng(seed, 'twins');
  const starts = new Prng(seed, 'starts');
  const loadHangs = faults !== noFaults && hangs.chance(0.15) ? 0.1 : 0;
  const restarts = new Prng(seed, 'restarts');
  const restartMs = restarts.chance(0.3) ? restarts.pick([6_000, 15_000, 40_000]) : 0;
  const neverReturns = restartMs > 0 && restarts.chance(0.5) ? 0.3 : 0;
  const breaksAtGrant = restartMs > 0 && restarts.chance(0.3) ? 0.1 : 0;
  const probeWild = faults !== noFaults && new Prng(seed, 'wild').chance(0.3) ? 0.05 : 0;
  const clockBackMs = faults !== noFaults && new Prng(seed, 'clock').chance(0.25) ? 20_000 : 0;
  const leaveMs = faults !== noFaults && new Prng(seed, 'leaving').chance(0.35) ? 20_000 : 0;
  const claimsOthers = restartMs > 0 && new Prng(seed, 'claims').chance(0.4) ? 0.2 : 0;
  // With a grace a connection that breaks is no end: then it may break often.
  const breakMs = restartMs > 0 && restarts.chance(0.5) ? 3_000 : faults.breakMs;
  const remembers = new Prng(seed, 'memory');
  const remembered = wide.map((model) => {
    const parkable = model.parkable || remembers.chance(0.4);
    return { ...model, parkable, memory: modelMemory(remembers, weightsOf(model.parts), weightsOf(model.trueParts), parkable) };
  });
  const memory = memoryKnobs(remembers, remembered.map((model) => model.memory), faults !== noFaults);
  return {
    seed,
    cards,
    engines: engines.map((engine) => ({ ...engine, memoryBytes: engineMemoryBytes(remembers) })),
    models: memory === null ? wide : remembered,
    clients: random.int(1, 4),
    holders: random.chance(0.6) ? random.int(1, 2) : 0,
    arrivalMs: random.pick([120, 300, 800, 2_000]),
    zipf: random.pick([0.5, 1, 1.5]),
    deadlineMs: random.pick([[500, 5_000], [2_000, 30_000], [20_000, 90_000]] as const),
    limits: {
      ...sparingSoon(new Prng(seed, 'spares'), limitKnobs(random)), ...(loadHangs > 0 ? { loadTimeoutMs: hangs.int(25_000, 90_000) } : {}),
      yieldRestMs: yields.pick([0, 3_000, 30_000]),
      ...(isTight ? { workersMax: shares.int(2, 5), queuedRequestsPerCardMax: shares.int(2, 5), spawnsAtOnceMax: starts.int(1, 3) } : {}),
      ...(restartMs > 0 ? { reattachGraceMs: restarts.int(1_000, restarts.pick([4_000, 30_000])) } : {}),
      hostGrowthBytesMax: remembers.pick([gib, 200 * mib]), ...thrashKnobs(new Prng(seed, 'thrash')),
    },
    floodMs: isTight ? shares.pick([500, 2_000, 8_000]) : 0,
    twins: twins.chance(0.4) ? twins.pick([0.1, 0.5]) : 0,
    classPolicies,
    allowLedgerOnly: cards.some((card) => card.confirms === 'none') || random.chance(0.15),
    faults: { ...faults, ...wideFaults, loadHangs, probeWild, breakMs, leaveMs, clockBackMs, restartMs, neverReturns, claimsOthers, breaksAtGrant },
    memory,
  };
}

/** Most seeds look back for a short while, so that a run is long beside it. */
function thrashKnobs(random: Prng): Pick<Limits, 'thrashWindowMs' | 'thrashBeginsPercent' | 'thrashEndsPercent' | 'thrashDampedPercent'> {
  const { thrashWindowMs, thrashBeginsPercent, thrashEndsPercent, thrashDampedPercent } = defaultLimits;
  if (random.chance(0.3)) return { thrashWindowMs, thrashBeginsPercent, thrashEndsPercent, thrashDampedPercent };
  return { thrashWindowMs: random.pick([10_000, 20_000, 40_000]), thrashBeginsPercent: random.int(3, 12), thrashEndsPercent: random.int(1, 3), thrashDampedPercent: random.pick([3, 10, 20, 100]) };
}

function weightsOf(parts: readonly LeasePart[]): number {
  return parts.reduce((sum, part) => sum + (part.kind === 'weights' ? part.bytes : 0), 0);
}

function cardKnobs(random: Prng): CardDescription[] {
  return Array.from({ length: random.pick([1, 1, 1, 2, 2, 3, 4]) }, (_, index) => {
    const totalBytes = random.int(6 * gib, 48 * gib);
    return {
      device: `SIM-card-${index}`,
      totalBytes,
      reserveBytes: random.pick([0, 256 * mib, random.int(0, gib)]),
      confirms: random.pick(['process', 'process', 'process', 'total', 'total', 'none'] as const),
      floorBytes: random.pick([null, 0, random.int(1, 400 * mib)]),
    };
  });
}

/** Where processes have no figures of their own the driver may be one that never refuses. */
function someSpill(random: Prng, cards: readonly CardDescription[]): CardDescription[] {
  return cards.map((card) => (card.confirms === 'total' && random.chance(0.4) ? { ...card, spills: true } : card));
}

/** Most cards give way to strangers, whether there are any or their readings would allow that. */
function someYield(random: Prng, cards: readonly CardDescription[]): CardDescription[] {
  return cards.map((card) => ({ ...card, yieldFreeBytes: random.chance(0.75) ? random.int(256 * mib, Math.floor(card.totalBytes / 2)) : null }));
}

function engineKnobs(random: Prng): EngineKnobs[] {
  return [
    { name: 'llama', modelsPerWorker: 1, partial: false, profilesFreeMemory: false, floorBytes: random.int(50 * mib, 500 * mib), spawnMs: random.int(100, 1_500), memoryBytes: 0 },
    { name: 'python', modelsPerWorker: random.int(2, 4), partial: random.chance(0.6), profilesFreeMemory: false, floorBytes: random.int(200 * mib, 700 * mib), spawnMs: random.int(500, 4_000), memoryBytes: 0 },
    { name: 'vllm', modelsPerWorker: 1, partial: false, profilesFreeMemory: true, floorBytes: random.int(200 * mib, 900 * mib), spawnMs: random.int(500, 5_000), memoryBytes: 0 },
  ];
}

function modelKnobs(random: Prng, index: number, engines: readonly EngineKnobs[], smallestCardBytes: number): ModelKnobs {
  const engine = random.pick(engines);
  const share = random.chance(0.04) ? 1.3 : random.pick([0.06, 0.15, 0.3, 0.45, 0.6, 0.75]);
  const sizeBytes = random.int(Math.floor(smallestCardBytes * share * 0.6), Math.floor(smallestCardBytes * share));
  const contextBytes = Math.floor(sizeBytes * random.pick([0.05, 0.1, 0.25]));
  const computeBytes = random.int(1, 300 * mib);
  const parts: LeasePart[] = [
    { name: 'weights', kind: 'weights', bytes: sizeBytes, upFront: true },
    { name: 'compute', kind: 'compute', bytes: computeBytes, upFront: random.chance(0.5) },
    { name: 'context:1', kind: 'context', bytes: contextBytes, upFront: random.chance(0.5) },
  ];
  const error = random.pick([0.7, 0.9, 1, 1, 1.03, 1.08]);
  const trueParts = parts.map((part) => ({ ...part, bytes: Math.floor(part.bytes * (part.kind === 'weights' ? error : Math.min(error, 1))) }));
  const peakFactor = random.pick([0, 0, 1.2, 1.5]);
  const sumBytes = sizeBytes + computeBytes + contextBytes;
  const trueSumBytes = trueParts.reduce((sum, part) => sum + part.bytes, 0);
  const loadMs = random.int(100, random.pick([1_000, 5_000, 20_000]));
  return {
    key: `model-${index}`,
    engine: engine.name,
    parts,
    peakBytes: Math.floor(sumBytes * peakFactor),
    trueParts,
    truePeakBytes: Math.max(trueSumBytes, Math.floor(sumBytes * peakFactor * Math.min(error, 1))),
    loadMs,
    moveMs: Math.max(5, Math.floor(loadMs / 10)),
    grows: 0.04,
    addsContexts: 0.03,
    callMs: random.int(20, random.pick([300, 2_000, 8_000])),
    parallel: random.int(1, 3),
    cards: 1,
    shares: [1],
    parkable: random.chance(0.4),
    ttlMs: random.chance(0.3) ? random.int(1_000, 20_000) : null,
    pinned: random.chance(0.05),
    class: random.pick(classes),
    loadFails: random.chance(0.06) ? random.pick([0.3, 1]) : 0,
    memory: null,
  };
}

/** Where there are several cards, half the seeds have models that are spread over some of them, as large on each as others are on one. */
function wideKnobs(random: Prng, cards: readonly CardDescription[], models: readonly ModelKnobs[]): ModelKnobs[] {
  if (cards.length === 1 || random.chance(0.5)) return [...models];
  return models.map((model) => {
    if (!random.chance(0.4)) return model;
    const count = random.int(2, Math.min(3, cards.length));
    const shares = random.pick([evenShares(count), evenShares(count), lopsidedShares(count)]);
    return {
      ...model, cards: count, shares, parts: times(model.parts, count), trueParts: times(model.trueParts, count),
      peakBytes: model.peakBytes * count, truePeakBytes: model.truePeakBytes * count,
    };
  });
}

function evenShares(count: number): number[] {
  return Array.from({ length: count }, () => 1 / count);
}

function lopsidedShares(count: number): number[] {
  return Array.from({ length: count }, (_, index) => (index === 0 ? 0.5 : 0.5 / (count - 1)));
}

function times(parts: readonly LeasePart[], count: number): LeasePart[] {
  return parts.map((part) => ({ ...part, bytes: part.bytes * count }));
}

function cardFaultKnobs(random: Prng, cards: readonly CardDescription[]): Partial<Faults> {
  return {
    cardLostMs: random.chance(0.2) ? random.pick([20_000, 60_000]) : 0,
    misplaces: cards.length > 1 && random.chance(0.2) ? 0.2 : 0,
  };
}

/** Half the seeds run with the shipped limits, half with a tighter clock, so that every deadline is met within a run. */
function limitKnobs(random: Prng): Limits {
  if (random.chance(0.5)) return defaultLimits;
  return {
    ...defaultLimits,
    heartbeatMissesMax: random.int(3, 6),
    spawnTimeoutMs: random.int(8_000, 20_000),
    terminateGraceMs: random.int(500, 3_000),
    killConfirmMs: random.int(1_000, 5_000),
    workerIdleMs: random.int(3_000, 30_000),
    grantConfirmMs: random.int(1_500, 5_000),
    releaseConfirmMs: random.int(15_000, 30_000),
    commandAnswerMs: random.int(1_000, 3_000),
    moveTimeoutMs: random.int(5_000, 15_000),
    drainTimeoutMs: random.int(5_000, 30_000),
    drainBatchMax: random.int(0, 8),
    backfillUntilMs: random.int(0, 4_000),
    backoffLastMs: random.int(8_000, 60_000),
    queuedRequestsPerCardMax: random.pick([4, 50, 1_000]),
  };
}

/** With a pause that ends within a run, what a failure spares others for ends in some of them, too. */
function sparingSoon(random: Prng, limits: Limits): Limits {
  return limits.backoffLastMs <= 60_000 && random.chance(0.6) ? { ...limits, failedLoadSparesMs: limits.backoffLastMs + random.pick([1, 20_000, 100_000]) } : limits;
}

function faultKnobs(random: Prng): Faults {
  const some = (value: number): number => (random.chance(0.35) ? value : 0);
  return {
    freeLagMsMax: some(random.pick([200, 2_000, 10_000])),
    exitLagMsMax: some(random.pick([500, 3_000, 10_000])),
    residualBytesMax: some(600 * mib),
    foreignMs: some(random.pick([1_000, 5_000, 20_000])),
    foreignShareMax: random.pick([0.1, 0.3, 0.7]),
    probeFails: some(0.2),
    probeHangs: some(0.05),
    probeLateMsMax: some(2_500),
    probeWild: 0,
    probeOutageMs: some(30_000),
    lowerRungMs: some(30_000),
    cardLostMs: 0,
    crashMs: some(40_000),
    stallMs: some(60_000),
    breakMs: some(60_000),
    leaveMs: 0,
    restartMs: 0,
    neverReturns: 0,
    claimsOthers: 0,
    breaksAtGrant: 0,
    spawnFails: some(0.2),
    spawnHangs: some(0.1),
    loadFails: some(0.15),
    loadHangs: 0,
    leaksOnFailure: some(0.5),
    ackEarly: some(0.25),
    ackLies: some(0.2),
    freesShort: some(0.3),
    misplaces: 0,
    overAllocates: some(0.2),
    ignoresCommands: some(0.15),
    answersLate: some(0.3),
    answersTwice: some(0.3),
    answersWrong: some(0.4),
    slowToBegin: some(0.2),
    losesGrants: some(0.3),
    ignoresSigterm: some(0.3),
    unkillable: some(0.1),
    staleMessages: some(0.3),
    loopStallMs: some(30_000),
    loopStallMsMax: random.pick([300, 2_000, 12_000]),
    clockJumpMs: some(60_000),
    clockBackMs: 0,
    wireDelayMsMax: random.pick([1, 5, 300]),
  };
}
