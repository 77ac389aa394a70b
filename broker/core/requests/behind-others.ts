/** For a waiting request: what is left of the longest that it may wait behind others, by who is there and who waits now. */
import { msSince } from '../clock.js';
import type { Card, Core, Waiter } from '../state.js';
import { inOrder } from './queue.js';
import { longestWaitBehindOthersMs, residencyMaxMs } from './wait-bound.js';

/** Reasons to wait that are of the queue and of what is in its way: others (its own process, the machine's memory, other cards) have no bound here. */
const ofTheQueue: readonly string[] = ['leaving', 'draining', 'sparing', 'behind_head', 'others_loading', 'load_token', 'rung_changed', 'quiet', 'no_victims'];

/** In ms from now, at least 0; null: it cannot be known. */
export function behindOthersMs(core: Core, card: Card, waiter: Waiter): number | null {
  if (!isKnowable(core, card, waiter)) return null;
  const { classPolicies, limits } = core.options;
  let older = 0;
  let loadMs = 0;
  const models = [...card.loading].map((id) => core.leases.get(id)?.model);
  for (const other of inOrder(core, card)) {
    if (other === waiter || other.arrivedUs > waiter.arrivedUs) continue;
    older++;
    models.push(other.model);
  }
  for (const model of models) {
    const known = core.models.get(model ?? '')?.loadMs ?? null;
    if (known === null) return null;
    loadMs = Math.max(loadMs, known);
  }
  const rounds = card.confirms === 'total' ? Math.max(2, card.leases.size) : 2;
  const wholeMs = longestWaitBehindOthersMs({ longestWaitMs: classPolicies[waiter.class].longestWaitMs, older, loadMs, residencyMs: residencyMaxMs(Object.values(classPolicies)), rounds }, limits);
  return Math.max(0, wholeMs - msSince(core, waiter.arrivedUs));
}

/** The card works as it should, nothing on it is beyond the broker's reach, and the request waits for it alone. */
function isKnowable(core: Core, card: Card, waiter: Waiter): boolean {
  if (waiter.gang !== null || (waiter.kind === 'place' && waiter.joined !== null)) return false;
  if (card.lost !== null || card.missing !== null || card.sample === null || card.closedBy.size > 0 || card.quarantined.size > 0) return false;
  const [reason, ...pinned] = (waiter.told ?? 'behind_head').split(' ');
  if (!ofTheQueue.includes(reason ?? '') || pinned.some((model) => model !== '')) return false;
  return [...card.leases].every((id) => core.processes.get(core.leases.get(id)?.generation ?? '')?.role !== 'holder');
}
