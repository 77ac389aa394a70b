/**
 * llama.cpp on a real card. A process costs hundreds of megabytes there before any model, and the broker has charged that
 * once: so whatever of this worker's tree touches the card does it alone. First a child that tries the backend, then,
 * when it is gone, this process. What that takes is read by the broker, which is not on the card: used bytes before the
 * first of them came, and after this process has computed a token.
 */
import { LeaseholdError } from '../../protocol/index.js';
import type { VisibleCard } from '../runtime/engine.js';
import { backendStamp } from './backend-stamp.js';
import { FloorMeter } from './floor-meter.js';
import { openLlama, type Llama } from './open-llama.js';
import { probeBackend, type ProbeBackend } from './probe.js';
import { runOneToken } from './probe-model.js';
import { wantedBytesIn } from './refused-bytes.js';
import type { StartBase, StartedLlama, StartOptions } from './started.js';
import { readTextOrNull } from './verdicts.js';

/** More than any driver takes for a process: what rose by more was somebody else's. */
const floorBytesMax = 2 * 1024 * 1024 * 1024;

/** The backend computes there; what a process costs, where that could be measured. */
interface Verdict {
  readonly floorBytes: number | null;
}

export interface Unusable {
  readonly reason: string;
}

export function isUnusable(started: StartedLlama | Unusable): started is Unusable {
  return 'reason' in started;
}

export async function startOnCard(card: VisibleCard, backend: ProbeBackend, base: StartBase, options: StartOptions): Promise<StartedLlama | Unusable> {
  const { library, verdicts } = base;
  const key = await probeKey(card, backend, await library.getModuleVersion());
  const known = verdictIn(await verdicts.get(key));
  if (known !== null && known.floorBytes !== null) return started(card, backend, base, await openWarm(base, backend), known.floorBytes);
  const before = await readingOf(card, base);
  if (known === null) {
    const reason = await tryBackend(card, backend, options);
    if (reason !== null) return { reason };
  }
  const llama = await openWarm(base, backend);
  const floorBytes = riseOf(before, before === null ? null : await readingOf(card, base));
  await verdicts.put(key, { floorBytes } satisfies Verdict);
  return started(card, backend, base, llama, floorBytes);
}

/** With its first token computed, which takes bytes too: so a floor is there when it is told, and the driver bears it out. */
async function openWarm(base: StartBase, backend: ProbeBackend): Promise<Llama> {
  const llama = await openLlama(base, backend);
  await runOneToken(llama);
  return llama;
}

/** Null when the backend computes there, else why it does not. */
async function tryBackend(card: VisibleCard, backend: ProbeBackend, options: StartOptions): Promise<string | null> {
  const probe = await probeBackend(backend, card.name, options);
  if (probe.works) return null;
  // A full card is no broken one: running on the CPU instead would hide it (B22).
  if (wantedBytesIn([probe.reason]) !== null) throw new LeaseholdError('spawn_failed', { engine: 'llama', reason: `the card has no room for a probe: ${probe.reason}` });
  return probe.reason;
}

/** Unknown is not zero: a floor that was not measured is not stated, and the broker goes on with what it charged. */
function started(card: VisibleCard, backend: ProbeBackend, base: StartBase, llama: Llama, floorBytes: number | null): StartedLlama {
  if (floorBytes === null) return { ...base, llama, backend, card, floors: [], meter: null };
  const { context } = base;
  const meter = new FloorMeter(floorBytes, {
    usedBytes: async () => (await llama.getVramState()).used,
    leasedBytes: async () => (await llama.getLlamaMemoryUsage()).gpuVram,
    neighbours: () => context.watch.neighbours(card.device),
    report: (bytes) => context.reportFloor(card.device, bytes),
  });
  return { ...base, llama, backend, card, floors: [{ device: card.device, bytes: floorBytes }], meter };
}

interface Reading {
  readonly usedBytes: number;
  readonly neighbours: string;
}

/** Null when the card cannot be read, or something else there is on the move. */
async function readingOf(card: VisibleCard, { context: { watch } }: StartBase): Promise<Reading | null> {
  const [usedBytes, neighbours] = [await watch.usedBytes(card.device), await watch.neighbours(card.device)];
  return usedBytes === null || neighbours === null ? null : { usedBytes, neighbours };
}

/** Null when neighbours have moved meanwhile, or when it is no floor that any driver has. */
export function riseOf(before: Reading | null, after: Reading | null): number | null {
  if (before === null || after?.neighbours !== before.neighbours) return null;
  const bytes = after.usedBytes - before.usedBytes;
  return bytes > 0 && bytes <= floorBytesMax ? bytes : null;
}

/** Everything that the answer of a probe depends on and that can be seen from here. */
async function probeKey(card: VisibleCard, backend: ProbeBackend, version: string): Promise<readonly (string | null)[]> {
  const driver = await readTextOrNull('/proc/driver/nvidia/version');
  const boot = await readTextOrNull('/proc/sys/kernel/random/boot_id');
  return ['probe', card.device, backend, version, await backendStamp(backend), driver, boot];
}

function verdictIn(kept: unknown): Verdict | null {
  if (typeof kept !== 'object' || kept === null || !('floorBytes' in kept)) return null;
  const { floorBytes } = kept;
  const isBytes = typeof floorBytes === 'number' && Number.isSafeInteger(floorBytes) && floorBytes > 0;
  return { floorBytes: isBytes ? floorBytes : null };
}
