/** A waiting request as victims are chosen for it. */
import type { Seeker } from '../eviction/victim.js';
import type { Core, Waiter } from '../state.js';
import { failingSinceUs } from './backoff.js';
import { isOverdue } from './queue.js';

export function seekerOf(core: Core, waiter: Waiter): Seeker {
  return { generation: waiter.generation, model: waiter.model, class: waiter.class, placing: waiter.kind === 'place', failingSinceUs: failingSinceUs(core, waiter.model, waiter.device), overdue: isOverdue(core, waiter) ? waiter : null };
}
