/** Starts llama.cpp on the card this process may use, or on the CPU where that is what is wanted. */
import { LeaseholdError } from '../../protocol/index.js';
import type { EngineContext, VisibleCard } from '../runtime/engine.js';
import { isUnusable, startOnCard } from './card-start.js';
import { importLibrary } from './library.js';
import { NativeLog } from './native-log.js';
import { openLlama } from './open-llama.js';
import type { ProbeBackend } from './probe.js';
import type { StartBase, StartedLlama, StartOptions } from './started.js';
import { Vetter } from './vet.js';
import { openVerdicts } from './verdicts.js';

/** Of the time a start may take, so that one that hangs is told of before the process is ended. */
const probesShare = 0.75;

/**
 * Rejects with `engine_missing` without node-llama-cpp, with `gang_unsupported` when this process sees several real cards,
 * with `card_unusable` when no backend computes on the one it was given and the CPU was not allowed in its place.
 */
export async function startLlama(context: EngineContext, options: StartOptions = {}): Promise<StartedLlama> {
  const library = options.library ?? await importLibrary();
  const verdicts = openVerdicts(options.verdictFolder ?? null, (...parts) => context.log(...parts));
  const base: StartBase = {
    library, context, verdicts,
    log: new NativeLog((...parts) => context.log(...parts)),
    threads: Math.max(1, context.threads),
    vetter: new Vetter(verdicts, await library.getModuleVersion(), options),
  };
  const real = context.cards.filter((card) => isReal(card));
  const [card] = real;
  // llama.cpp spreads a model over every card it sees by what is free there at that moment; the bindings neither set the split nor show it.
  if (real.length > 1) throw new LeaseholdError('gang_unsupported', { model: 'A model of llama.cpp', size: real.length, reason: 'node-llama-cpp takes no split, and shows no figures card by card' });
  return card === undefined ? startOnCpu(base, context.cards.find(({ simulated }) => simulated) ?? null) : startOnReal(card, base, options);
}

/** Without a card, or with a simulated one whose bytes are counted as the CPU's. */
async function startOnCpu(base: StartBase, card: VisibleCard | null, floors: StartedLlama['floors'] = []): Promise<StartedLlama> {
  return { ...base, llama: await openLlama(base, false), backend: 'cpu', card, floors, meter: null };
}

async function startOnReal(card: VisibleCard, base: StartBase, options: StartOptions): Promise<StartedLlama> {
  const { context } = base;
  const reasons: string[] = [];
  const probesEndMs = performance.now() + context.startTimeoutMs * probesShare;
  for (const backend of backendsFor(card, process.platform)) {
    const probeTimeoutMs = Math.min(options.probeTimeoutMs ?? Infinity, probesEndMs - performance.now());
    const started = probeTimeoutMs > 0 ? await startOnCard(card, backend, base, { ...options, probeTimeoutMs }) : { reason: 'no time was left to try it' };
    if (!isUnusable(started)) return started;
    reasons.push(`${backend}: ${started.reason}`);
    context.log('warn', `llama.cpp does not compute with ${backend} here: ${started.reason}`, { device: card.device });
  }
  if (options.cpuFallback !== 'allow') throw new LeaseholdError('card_unusable', { engine: 'llama', card: card.name, device: card.device, reason: reasons.join('; ') });
  context.log('warn', 'no backend of llama.cpp computes on the card: running on the CPU, as allowed, where nothing is leased', { device: card.device });
  // Known, and worth saying: what was charged there for this process is free.
  return startOnCpu(base, null, [{ device: card.device, bytes: 0 }]);
}

/** Backends worth a probe on `card`, best first. */
export function backendsFor(card: VisibleCard, platform: NodeJS.Platform): readonly ProbeBackend[] {
  if (platform === 'darwin') return ['metal'];
  return /\b(amd|radeon|instinct|intel|arc)\b/i.test(card.name) ? ['vulkan'] : ['cuda', 'vulkan'];
}

/** A card with a driver under it; `CPU-0` and simulated cards have none. */
function isReal(card: VisibleCard): boolean {
  return !card.simulated && !card.device.startsWith('CPU-');
}
