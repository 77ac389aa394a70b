/** Starts llama.cpp on the card this process may use when a card really computes, else on the CPU; measures what that took. */
import { setTimeout as wait } from 'node:timers/promises';
import { LeaseholdError } from '../../protocol/index.js';
import type { EngineContext, VisibleCard } from '../runtime/engine.js';
import { backendStamp } from './backend-stamp.js';
import { wantedBytesIn } from './refused-bytes.js';
import { importLibrary, type Library } from './library.js';
import { NativeLog } from './native-log.js';
import { probeBackend, type LivingProbe, type ProbeBackend, type ProbeOptions } from './probe.js';
import { runOneToken } from './probe-model.js';
import { Vetter, type VetOptions } from './vet.js';
import { openVerdicts, readTextOrNull, type Verdicts } from './verdicts.js';

export type Llama = Awaited<ReturnType<Library['getLlama']>>;

export interface StartedLlama {
  readonly library: Library;
  readonly llama: Llama;
  readonly backend: ProbeBackend | 'cpu';
  /** Where this process's bytes are: a real card with a backend that works, a simulated one, or none. */
  readonly card: VisibleCard | null;
  readonly threads: number;
  readonly log: NativeLog;
  readonly context: EngineContext;
  readonly verdicts: Verdicts;
  readonly vetter: Vetter;
  readonly floors: readonly { readonly device: string; readonly bytes: number }[];
}

export interface StartOptions extends ProbeOptions, VetOptions {
  /** A private folder for what children found out; null: it is asked for again at each start. */
  readonly verdictFolder?: string | null;
}

/** More than any driver takes for a process: what rose by more was somebody else's. */
const floorBytesMax = 2 * 1024 * 1024 * 1024;
const settleMs = 30;
const settleBytes = 4 * 1024 * 1024;

/** Rejects with `engine_missing` without node-llama-cpp, with `gang_unsupported` when this process sees several real cards. */
export async function startLlama(context: EngineContext, options: StartOptions = {}): Promise<StartedLlama> {
  const library = await importLibrary();
  const log = new NativeLog((...parts) => context.log(...parts));
  const threads = Math.max(1, context.threads);
  const verdicts = openVerdicts(options.verdictFolder ?? null, (...parts) => context.log(...parts));
  const vetter = new Vetter(verdicts, await library.getModuleVersion(), options);
  const base = { library, log, threads, context, verdicts, vetter };
  const real = context.cards.filter((card) => isReal(card));
  const [card] = real;
  // llama.cpp spreads a model over every card it sees, and no option names one.
  if (real.length > 1) throw new LeaseholdError('gang_unsupported');
  if (card !== undefined) {
    for (const backend of backendsFor(card, process.platform)) {
      const started = await startOnCard(card, backend, base, options);
      if (started !== null) return started;
    }
    context.log('warn', 'no backend of llama.cpp computes on the card: running on the CPU, where nothing is leased', { device: card.device });
  }
  const llama = await getLlama(library, false, threads, log);
  const simulated = context.cards.find((candidate) => candidate.simulated) ?? null;
  return { ...base, llama, backend: 'cpu', card: simulated, floors: [] };
}

/** Backends worth a probe on `card`, best first. */
export function backendsFor(card: VisibleCard, platform: NodeJS.Platform): readonly ProbeBackend[] {
  if (platform === 'darwin') return ['metal'];
  return /\b(amd|radeon|instinct|intel|arc)\b/i.test(card.name) ? ['vulkan'] : ['cuda', 'vulkan'];
}

type StartBase = Pick<StartedLlama, 'library' | 'log' | 'threads' | 'context' | 'verdicts' | 'vetter'>;

async function startOnCard(card: VisibleCard, backend: ProbeBackend, base: StartBase, options: StartOptions): Promise<StartedLlama | null> {
  const { library, log, threads, context, verdicts } = base;
  const key = await probeKey(card, backend, await library.getModuleVersion());
  const known = probeVerdict(await verdicts.get(key));
  if (known !== null) {
    const llama = await getLlama(library, backend, threads, log);
    return { ...base, llama, backend, card, floors: floorsOf(card, known.floorBytes) };
  }
  const probe = await probeBackend(backend, options);
  if (!probe.works) {
    // A full card is no broken one: running on the CPU instead would hide it (B22).
    if (wantedBytesIn([probe.reason]) !== null) throw new LeaseholdError('spawn_failed', { engine: 'llama', reason: `the card has no room for a probe: ${probe.reason}` });
    context.log('warn', `llama.cpp does not compute with ${backend} here: ${probe.reason}`, { device: card.device });
    return null;
  }
  try {
    const { llama, floorBytes } = await startMeasured(probe, backend, base, (bytes) => context.reportFloor(card.device, bytes));
    if (floorBytes !== null) await verdicts.put(key, { floorBytes });
    return { ...base, llama, backend, card, floors: floorsOf(card, floorBytes) };
  } finally {
    await probe.release();
  }
}

/**
 * The floor is the rise of the card's used bytes while this process starts and first computes, read from `before` (the
 * idle probe) to after. What neighbours do meanwhile is in it too: a reading that moves, or no floor that any driver
 * has, is none.
 */
async function startMeasured(before: LivingProbe, backend: ProbeBackend, base: StartBase, report: (bytes: number) => void): Promise<{ llama: Llama; floorBytes: number | null }> {
  const usedBefore = await settled(() => before.usedBytes());
  const llama = await getLlama(base.library, backend, base.threads, base.log);
  const rise = async (): Promise<number | null> => {
    const used = await settled(async () => (await llama.getVramState()).used);
    const bytes = usedBefore === null || used === null ? NaN : used - usedBefore;
    return bytes >= 0 && bytes <= floorBytesMax ? Math.ceil(bytes) : null;
  };
  const bare = await rise();
  if (bare !== null) report(bare);
  await runOneToken(llama);
  const afterCompute = await rise();
  if (afterCompute !== null && afterCompute !== bare) report(afterCompute);
  return { llama, floorBytes: afterCompute };
}

/** A reading that is the same a moment later; null when the card is not at rest. */
async function settled(read: () => Promise<number | null>): Promise<number | null> {
  const first = await read();
  await wait(settleMs);
  const second = await read();
  return first !== null && second !== null && Math.abs(second - first) <= settleBytes ? second : null;
}

async function getLlama(library: Library, gpu: ProbeBackend | false, maxThreads: number, log: NativeLog): Promise<Llama> {
  try {
    return await library.getLlama({
      gpu,
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      maxThreads,
      // The broker keeps the reserves; a second margin here would refuse what was granted.
      ramPadding: 0,
      vramPadding: 0,
      logLevel: library.LlamaLogLevel.warn,
      logger: log.take,
    });
  } catch (error) {
    throw LeaseholdError.from(error, 'engine_missing', { engine: 'llama' });
  }
}

/** Everything that the answer of a probe depends on and that can be seen from here. */
async function probeKey(card: VisibleCard, backend: ProbeBackend, version: string): Promise<readonly (string | null)[]> {
  const driver = await readTextOrNull('/proc/driver/nvidia/version');
  const boot = await readTextOrNull('/proc/sys/kernel/random/boot_id');
  return ['probe', card.device, backend, version, await backendStamp(backend), driver, boot];
}

function probeVerdict(kept: unknown): { readonly floorBytes: number } | null {
  const { floorBytes } = (kept ?? {}) as { readonly floorBytes?: unknown };
  return typeof floorBytes === 'number' && Number.isSafeInteger(floorBytes) && floorBytes >= 0 ? { floorBytes } : null;
}

/** Unknown is not zero: a floor that was not measured is not stated. */
function floorsOf(card: VisibleCard, bytes: number | null): StartedLlama['floors'] {
  return bytes === null ? [] : [{ device: card.device, bytes }];
}

/** A card with a driver under it; `CPU-0` and simulated cards have none. */
function isReal(card: VisibleCard): boolean {
  return !card.simulated && !card.device.startsWith('CPU-');
}
