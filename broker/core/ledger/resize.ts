/** Growth while tokens flow: granted or denied, never waits (D17). Bytes 0 drop a part, which frees like any release: when it is seen gone. */
import type { LeasePart } from '../../../protocol/index.js';
import { available } from './available.js';
import { deny, shortageText, type Refusal } from '../requests/deny.js';
import type { CoreEvent } from '../events.js';
import { companions, gangBroken } from '../gangs/gang.js';
import { tellGranted, grow } from '../requests/grant.js';
import { leasableBytesMax } from './headroom.js';
import { setCharged } from './ledger.js';
import { ownLease } from './lease-events.js';
import { notYours } from './lease-id.js';
import { reindex } from './lease-store.js';
import { mustCard } from '../must.js';
import { chargeFor, mergeParts, sumOf } from './need.js';
import { beginRelease } from './release.js';
import { explain, inWords, emit } from '../report.js';
import { wrongBytes } from '../requests/request.js';
import type { Core, Lease } from '../state.js';

type Resize = Extract<CoreEvent, { type: 'resize_requested' }>;

/** One lease, and what it is to be. */
interface Change {
  readonly lease: Lease;
  readonly parts: readonly LeasePart[];
  readonly sumBytes: number;
}

/** All of the leases that are named change, or none of them does. */
export function onResizeRequested(core: Core, event: Resize): void {
  const lease = ownLease(core, event);
  if (lease === null) {
    if (core.processes.has(event.generation) && notYours(core, event.lease, event.generation) === null) refuseNamed(core, event, event.lease);
    return;
  }
  const changes = changesOf(core, event, lease);
  if (changes === null) return;
  for (const change of changes) {
    const refusal = refuse(core, change, changes);
    if (refusal === null) continue;
    denyResize(core, event, change.lease, refusal, Number.isNaN(change.sumBytes) ? 0 : change.sumBytes);
    return;
  }
  const wanted = (): number => changes.reduce((sum, change) => sum + change.lease.charge.wantedBytes, 0);
  const beforeBytes = wanted();
  for (const change of changes) apply(core, change);
  tellResized(core, event, lease, changes, Math.max(0, wanted() - beforeBytes));
}

/** The changes asked for; null: the request has been refused. */
function changesOf(core: Core, event: Resize, first: Lease): readonly Change[] | null {
  const changes: Change[] = [];
  for (const { lease: id, parts } of [{ lease: event.lease, parts: event.parts }, ...(event.also ?? [])]) {
    const lease = core.leases.get(id);
    const isOther = lease === undefined || lease.generation !== event.generation || (lease !== first && (lease.gang === null || lease.gang !== first.gang));
    if (isOther) {
      refuseNamed(core, event, id);
      return null;
    }
    if (changes.some((change) => change.lease === lease)) {
      emit(core, { type: 'fail', generation: event.generation, request: event.request, code: 'message_invalid', details: { type: 'resize_lease', field: 'also', expected: `other leases of its gang, each once: ${id} is named twice` } });
      return null;
    }
    const wrong = wrongBytes(parts, 0);
    if (wrong !== null) {
      denyResize(core, event, lease, wrong, 0);
      return null;
    }
    const merged = mergeParts(lease.parts, parts);
    changes.push({ lease, parts: merged, sumBytes: sumOf(merged) });
  }
  return changes;
}

function refuseNamed(core: Core, event: Resize, lease: string): void {
  const { code, details } = notYours(core, lease, event.generation) ?? { code: 'lease_unknown', details: { lease } };
  emit(core, { type: 'fail', generation: event.generation, request: event.request, code, details });
}

function apply(core: Core, { lease, parts, sumBytes }: Change): void {
  const grownBytes = sumBytes - sumOf(lease.parts);
  const wantedBytes = chargeFor(sumBytes, lease.exclusive);
  lease.parts = parts;
  if (wantedBytes > lease.charge.wantedBytes) {
    setCharged(core, lease.charge, wantedBytes);
    if (lease.state === 'resident') grow(core, lease);
    reindex(core, lease);
  } else if (grownBytes < 0 && lease.state === 'resident' && lease.job === null && lease.release === null && !lease.growing) {
    shrink(core, lease, -grownBytes, wantedBytes);
  }
}

function tellResized(core: Core, event: Resize, lease: Lease, changes: readonly Change[], grownBytes: number): void {
  const cards = changes.map((change) => `${inWords(change.sumBytes)}${changes.length > 1 ? ` on ${change.lease.device}` : ''}`).join(', ');
  const id = explain(core, {
    verdict: 'granted', text: `${lease.model} is ${cards} in parts now, ${changes.map((change) => inWords(chargeFor(change.sumBytes, change.lease.exclusive))).join(', ')} to be charged`,
    generation: lease.generation, request: event.request, model: lease.model, device: lease.device,
  });
  const also = changes.filter((change) => change.lease !== lease).map((change) => change.lease);
  tellGranted(core, { generation: event.generation, request: event.request, model: lease.model }, lease, id, grownBytes, also);
}

/** A part was dropped: its bytes stay charged until a measurement shows them gone. */
function shrink(core: Core, lease: Lease, droppedBytes: number, wantedBytes: number): void {
  const leftBytes = Math.max(0, lease.charge.residentBytes - droppedBytes);
  beginRelease(core, lease, { leftBytes, toChargedBytes: Math.max(wantedBytes, leftBytes), then: 'resident', rung: 'partial', cause: 'reported' });
}

function refuse(core: Core, { lease, sumBytes }: Change, all: readonly Change[]): Refusal | null {
  if (Number.isNaN(sumBytes)) return { code: 'bytes_invalid', details: { field: 'sum of parts', value: `above ${String(leasableBytesMax)}`, minimum: '0', maximum: String(leasableBytesMax) }, text: 'the sum of parts cannot be leased' };
  if (lease.state === 'releasing' || lease.state === 'quarantined' || lease.state === 'parked' || (lease.release !== null && lease.release.then !== 'resident')) {
    return { code: 'lease_unknown', details: { lease: lease.id }, text: `lease ${lease.id} is being given back` };
  }
  const others = companions(core, lease);
  if (sumBytes > sumOf(lease.parts) && others.length > all.length) {
    return gangBroken({ model: lease.model, size: others.length }, `lease ${lease.id} is one of a gang, which grows on all of its cards or on none`);
  }
  const growBytes = chargeFor(sumBytes, lease.exclusive) - lease.charge.wantedBytes;
  const card = mustCard(core, lease.device);
  const { freeBytes } = available(core, card);
  // What is charged above what it will have left is leaving: no growth is to take that again.
  const leaves = lease.release !== null || lease.job?.phase === 'moving';
  // Within its charge, unless that is an overshoot which more bytes would make real.
  const intoOvershoot = sumBytes > sumOf(lease.parts) && freeBytes !== null && freeBytes < 0;
  const intoLeaving = leaves && sumBytes > sumOf(lease.parts);
  if (growBytes <= 0 && !intoOvershoot && !intoLeaving) return null;
  const spareBytes = freeBytes === null ? 0 : Math.max(0, freeBytes - card.holdBytes);
  if (card.lost === null && card.closedBy.size === 0 && freeBytes !== null && growBytes <= spareBytes && !intoOvershoot && !leaves) return null;
  return { code: 'resize_denied', details: { model: lease.model, growBytes: String(growBytes), availableBytes: String(spareBytes) }, text: shortageText(core, card, growBytes) };
}

function denyResize(core: Core, event: Resize, lease: Lease, refusal: Refusal, sumBytes: number): void {
  const needBytes = Math.max(0, chargeFor(sumBytes, lease.exclusive) - lease.charge.wantedBytes);
  deny(core, { generation: event.generation, request: event.request, model: lease.model, class: lease.class, card: mustCard(core, lease.device), requestedBytes: sumBytes, needBytes, ...refusal });
}
