/** A bound that all share refuses the newest of the peer that has the most of it, and never one of a peer with fewer. */
import type { Check, EffectOf } from './check.js';
import type { AuditedProcess, AuditedRequest } from './records.js';

export function checkShares(check: Check, refusal: EffectOf<'deny'>, request: AuditedRequest): void {
  if (refusal.code === 'queue_full') checkQueue(check, refusal, request);
  if (refusal.code === 'too_many_workers') checkWorkers(check, request);
}

function checkQueue(check: Check, refusal: EffectOf<'deny'>, refused: AuditedRequest): void {
  const { book } = check;
  // One of a gang is told why another of it was refused, on its own card: that one is judged.
  if (refused.gang !== null && refusal.details['device'] !== refused.device) return;
  const device = refusal.explain === null ? null : (check.records.get(refusal.explain)?.device ?? null);
  const name = `queue_full to ${refused.generation}#${refused.request}`;
  const counts = new Map<string, number>([[refused.generation, 1]]);
  for (const other of book.requests.values()) {
    const isOwn = other.generation === refused.generation;
    // A placement over several cards tells of one of them, and stands in the queues of all.
    const isThere = other.queuedOn === device || (isOwn && other.cards > 1 && other.queuedOn !== null);
    // One that need not be answered may be gone already: it counts for its own peer alone.
    if (other === refused || !isThere || other.cancelled || (other.isOptional && !isOwn)) continue;
    counts.set(other.generation, (counts.get(other.generation) ?? 0) + 1);
    // Of one over several cards it is not known whether this is another of them.
    if (isOwn && other.queuedOn === device && other.order > refused.order && !refused.isOptional && !hasJustCome(check, refused)) check.broken('share', `${name}: #${other.request} came later`);
  }
  const own = counts.get(refused.generation) ?? 0;
  for (const [peer, count] of counts) if (count > own) check.broken('share', `${name}: it has ${own} in the queue of ${device ?? '?'}, ${peer} has ${count}`);
}

function checkWorkers(check: Check, refused: AuditedRequest): void {
  const { book } = check;
  const name = `too_many_workers to ${refused.generation}#${refused.request}`;
  const unused = new Map<string, AuditedProcess[]>();
  for (const process of book.processes.values()) {
    if (process.startedFor === null || (process.state !== 'spawning' && process.state !== 'ready')) continue;
    unused.set(process.startedFor, [...(unused.get(process.startedFor) ?? []), process]);
  }
  const awaited = [...book.requests.values()].filter((other) => other !== refused && other.generation === refused.generation && other.awaitsEnd).length;
  const own = (unused.get(refused.generation)?.length ?? 0) + awaited;
  // One whose own start is given up has it still by the book.
  if (refused.startsIn !== null) return;
  for (const [peer, processes] of unused) {
    const canGo = processes.some((process) => [...book.requests.values()].every((other) => other.startsIn !== process.generation || other.generation === peer));
    if (peer !== refused.generation && canGo && processes.length > own + 1) check.broken('share', `${name}: it has ${own} unused workers, ${peer} has ${processes.length}`);
  }
}

/** Asked in this very step, perhaps under an id that had been answered before. */
function hasJustCome({ event }: Check, request: AuditedRequest): boolean {
  return (event.type === 'budget_requested' || event.type === 'place_requested') && event.generation === request.generation && event.request === request.request;
}
