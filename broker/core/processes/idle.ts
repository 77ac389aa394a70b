/** A worker without models, promises and requests is idle: it ends after workerIdleMs, and is the cheapest victim before. */
import { inMs } from '../clock.js';
import type { Core, Process } from '../state.js';

/** Whether nothing would be lost but the process itself. */
export function isIdleWorker(process: Process): boolean {
  return process.role === 'worker' && process.state === 'ready' && process.models.size === 0 && process.leases.size === 0 && process.requests.size === 0;
}

/** It was asked something, or asked: the countdown begins anew. */
export function wasUseful(core: Core, process: Process): void {
  core.timers.drop('idle', process.generation);
  considerIdle(core, process);
}

/** Starts or stops the idle countdown of a worker; call whenever one of those three changes. */
export function considerIdle(core: Core, process: Process): void {
  if (!isIdleWorker(process)) {
    core.timers.drop('idle', process.generation);
    return;
  }
  for (const device of process.devices) {
    const card = core.cards.get(device);
    if (card === undefined) continue;
    card.planEpoch++;
    core.dirty.add(device);
  }
  if (!core.timers.has('idle', process.generation)) core.timers.set('idle', process.generation, inMs(core, core.options.limits.workerIdleMs));
}
