/** A broker that starts where an earlier one died, and a worker and a holder of that one which come back to it. */
import type { LeaseTerms, ModelState } from '../../../protocol/index.js';
import { card0, plusTenth, Stage, weights, type CardOptions } from './harness.js';

export const worker = 'old-w1';
export const holder = 'old-s4';
export const graceMs = 30_000;
export const card1 = 'GPU-1';

/** A new broker that has read its records, with the truth of the card that the dead one left. */
export function restarted(options: { readonly recorded?: readonly ('worker' | 'holder')[]; readonly card?: CardOptions; readonly heldBytes?: number; readonly graceMs?: number } = {}): Stage {
  const stage = new Stage({ limits: { reattachGraceMs: options.graceMs ?? graceMs } });
  stage.card(card0, options.card ?? {});
  for (const role of options.recorded ?? ['worker']) {
    const generation = role === 'worker' ? worker : holder;
    if (options.heldBytes !== undefined) stage.take(generation, options.heldBytes);
    stage.send({ type: 'process_recorded', generation, role, name: role, engine: role === 'worker' ? 'llama' : null, devices: [card0], floors: [] });
  }
  stage.sample();
  return stage;
}

export function terms(bytes: number, changes: Partial<LeaseTerms> = {}): LeaseTerms {
  return { chargedBytes: plusTenth(bytes), parts: [weights(bytes)], class: 'normal', policy: { ttlMs: null, pinned: false, exclusive: false }, ...changes };
}

export function held(bytes: number, changes: Partial<ModelState> = {}): ModelState {
  return { model: 'tales', lease: 'old-w1-l7', device: card0, state: 'resident', residentBytes: bytes, hostBytes: 0, inFlight: 0, parkable: false, terms: terms(bytes), ...changes };
}

export function comesBack(stage: Stage, generation = worker, floorBytes = 0): ReturnType<Stage['send']> {
  const resumed = stage.send({ type: 'process_resumed', generation });
  if (generation === holder) return resumed;
  return stage.send({ type: 'process_ready', generation, capabilities: { park: true, partial: false, embed: false, profilesFreeMemory: false }, floors: [{ device: card0, bytes: floorBytes }] });
}

export function announces(stage: Stage, models: readonly ModelState[], generation = worker): ReturnType<Stage['send']> {
  return stage.send({ type: 'models_announced', generation, seq: 1, models });
}
