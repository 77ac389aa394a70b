/**
 * Who was asked to leave a card, or says that it has, and is still there after
 * `leavingSlowMs`: named to those whom it keeps waiting, in the view, and once
 * among the events. Nothing is decided by it.
 */
import { msSince } from '../clock.js';
import { mustLease } from '../must.js';
import { callsInWords, inWords, listed, publish, secondsInWords } from '../report.js';
import type { Card, Core, Lease } from '../state.js';

export interface SlowLeaving {
  /** Of the lease, or of the process that has ended. */
  readonly id: string;
  readonly sinceMs: number;
  /** One clause for a person. */
  readonly text: string;
}

/** Leaves that take too long on a card, the longest first. */
export function slowLeaving(core: Core, card: Card): SlowLeaving[] {
  if (card.jobs.size + card.releasing.size + card.returning.size === 0) return [];
  const slow: SlowLeaving[] = [];
  for (const id of new Set([...card.jobs, ...card.releasing])) {
    const lease = mustLease(core, id);
    const sinceMs = leavingMs(core, lease);
    if (sinceMs !== null && sinceMs >= core.options.limits.leavingSlowMs) slow.push({ id, sinceMs, text: leavingText(lease, sinceMs) });
  }
  for (const { generation, exitedUs, charge } of card.returning.values()) {
    const sinceMs = msSince(core, exitedUs);
    if (sinceMs < core.options.limits.leavingSlowMs) continue;
    slow.push({ id: generation, sinceMs, text: `${generation} ended ${secondsInWords(sinceMs)} ago and ${inWords(charge.chargedBytes)} of it are not back yet` });
  }
  return slow.sort((a, b) => b.sinceMs - a.sinceMs);
}

/** The same as one clause; empty where nobody is slow. */
export function slowLeavingText(slow: readonly SlowLeaving[]): string {
  return listed(slow.map(({ text }) => text), '; ');
}

/** How long ago a lease was asked to leave, or was said to have left; null: it stays. */
export function leavingMs(core: Core, { job, release }: Lease): number | null {
  if (release !== null) return msSince(core, release.reportedUs);
  return job === null || job.phase === 'cancelling' ? null : msSince(core, job.startedUs);
}

function leavingText(lease: Lease, sinceMs: number): string {
  const who = `${lease.model} (${lease.generation})`;
  const ago = `${secondsInWords(sinceMs)} ago`;
  if (lease.release !== null) {
    const { fromResidentBytes, leftBytes, measuredAtUs } = lease.release;
    const shown = measuredAtUs === null ? 'no reading of the card has confirmed it' : 'the card still shows them';
    return `${who} said ${ago} that ${inWords(fromResidentBytes - leftBytes)} were freed; ${shown}`;
  }
  const inside = lease.inFlight + lease.queued;
  if (inside > 0) return `${who} was asked to leave ${ago} and still has ${callsInWords(inside)} inside`;
  return `${who} was asked to leave ${ago} and has not ${lease.job?.phase === 'put_off' ? 'come to the end of its load' : 'answered'}`;
}

/** Told once for each order or report; one that ends its calls first is on its way. */
export function publishSlowLeaving(core: Core, card: Card): void {
  if (card.jobs.size + card.releasing.size === 0) return;
  for (const { id, sinceMs, text } of slowLeaving(core, card)) {
    const lease = core.leases.get(id);
    const leaving = lease?.release ?? lease?.job ?? null;
    if (lease === undefined || leaving === null || leaving.toldSlow || (lease.release === null && lease.inFlight + lease.queued > 0)) continue;
    leaving.toldSlow = true;
    publish(core, 'leaving_slowly', { lease: id, model: lease.model, generation: lease.generation, device: card.device, sinceMs, answered: lease.release !== null, why: text });
  }
}
