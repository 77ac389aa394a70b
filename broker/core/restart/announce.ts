/** A process's full announcement, compared with the ledger: what it lacks is released (not freed), what it has without a lease is taken in and put away. */
import type { ModelState } from '../../../protocol/index.js';
import { available } from '../ledger/available.js';
import { closeCommand } from '../eviction/command.js';
import type { CoreEvent } from '../events.js';
import { clearUnexplained } from './closed-cards.js';
import { chargeFloor } from '../ledger/floors.js';
import { isBytes } from '../ledger/headroom.js';
import { reportShare } from '../memory/share.js';
import { giveBack, recall } from '../ledger/lease-events.js';
import { nextLeaseId, notYours, ownerOf, wasLease } from '../ledger/lease-id.js';
import { enterLease, newLease, setState, setUse } from '../ledger/lease-store.js';
import { setCharged, setResident } from '../ledger/ledger.js';
import { attachLease } from '../processes/model.js';
import { mustLease } from '../must.js';
import { overLease, setOver } from '../cards/overshoot.js';
import { chargeFor } from '../ledger/need.js';
import { isStranger, returned } from './reattach.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Lease, Process } from '../state.js';
import { strandBroken, takeIn } from './take-in.js';

export function onModelsAnnounced(core: Core, event: Extract<CoreEvent, { type: 'models_announced' }>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'staleEvents');
    return;
  }
  for (const id of process.commands) if (core.commands.get(id)?.kind === 'list') closeCommand(core, id);
  if (isStranger(process)) clearUnexplained(core, process);
  const held = new Map<string, ModelState>();
  const spokenFor = new Set(event.models.map(({ lease }) => lease));
  for (const state of event.models) {
    const lease = leaseOf(core, process, state, spokenFor) ?? (process.returning ? takeIn(core, process, state) : null) ?? adopt(core, process, state);
    if (lease === null) continue;
    held.set(lease.id, state);
    spokenFor.add(lease.id);
  }
  for (const id of [...process.leases]) {
    const lease = mustLease(core, id);
    const state = held.get(id);
    if (state !== undefined) reconcile(core, process, lease, state);
    else if (lease.state === 'granted') askAfter(core, process, lease);
    else if (lease.state !== 'quarantined' && lease.release === null) giveBack(core, lease);
  }
  if (process.returning) strandBroken(core, process, event.models);
  if (process.returning && process.sessionOpen && process.state !== 'ending') returned(core, process);
}

/** What was granted a moment ago may not have reached it yet (D5). What was granted over a connection that is lost may never: asked at once, for it may want the same anew. */
function askAfter(core: Core, process: Process, lease: Lease): void {
  if (process.returning && lease.recallCommand === null) recall(core, lease);
}

/** By its name; one that names none of its own means whichever of that model there is of which no other state speaks. */
function leaseOf(core: Core, process: Process, state: ModelState, spokenFor: ReadonlySet<string | null>): Lease | null {
  const named = state.lease === null ? undefined : core.leases.get(state.lease);
  if (named?.generation === process.generation && named.model === state.model) return named;
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    if (!spokenFor.has(id) && lease.model === state.model && (state.device === null || lease.device === state.device)) return lease;
  }
  return null;
}

/** Brings a lease into line with what its owner says it holds. */
function reconcile(core: Core, process: Process, lease: Lease, state: ModelState): void {
  // Given up for lost with its connection, and here again.
  if (process.returning && lease.state === 'granted' && state.state !== 'parked') setState(core, lease, 'loading');
  if (process.returning && lease.state === 'quarantined') setState(core, lease, state.state === 'parked' ? 'parked' : 'resident');
  lease.residency = state.state;
  // What its owner says of its use goes by another name, and reaches it only here.
  if (state.lease !== lease.id) setUse(core, lease, state.inFlight, 0);
  // A load ends with its report, in memory as on the card: an announcement alone, perhaps of another lease, ends none.
  reportShare(core, lease, state.hostBytes, lease.state === 'loading' ? null : state.state);
  if (lease.state === 'granted' || lease.release !== null || lease.state === 'quarantined' || !isBytes(state.residentBytes)) return;
  setResident(core, lease.charge, state.residentBytes);
  if (state.residentBytes > lease.charge.wantedBytes) overLease(core, lease, state.residentBytes, chargeFor(state.residentBytes, lease.exclusive));
  if (lease.state === 'parked' && state.residentBytes > 0) setState(core, lease, 'resident');
}

/** Bytes on a card under no lease: charged at once, visible, and unloaded as soon as nothing uses them (R271, R273). */
function adopt(core: Core, process: Process, state: ModelState): Lease | null {
  if (state.residentBytes === 0 || !isBytes(state.residentBytes)) return null;
  const card = core.cards.get(state.device ?? process.devices[0] ?? '');
  if (card === undefined || core.leases.size >= core.options.limits.leasesMax) {
    count(core, 'strayReports');
    return null;
  }
  count(core, 'strays');
  chargeFloor(core, card, process.generation, process.engine);
  const lease = strayLease(core, card, process, state);
  enterLease(core, card, lease);
  attachLease(core, process, lease);
  setCharged(core, lease.charge, state.residentBytes);
  setResident(core, lease.charge, state.residentBytes);
  setState(core, lease, 'resident');
  reportShare(core, lease, state.hostBytes, 'resident');
  const known = lease.id === state.lease;
  publish(core, 'overshoot', { lease: lease.id, model: lease.model, generation: process.generation, device: card.device, bytes: state.residentBytes });
  const refused = state.lease === null ? null : notYours(core, state.lease, process.generation);
  const how = known ? 'under a lease that had ended; it is charged again' : `without a lease${refused === null ? '' : ` (${refused.text})`}; charged, and to be unloaded`;
  explain(core, {
    verdict: 'overshoot', text: `${process.generation} holds ${inWords(state.residentBytes)} of ${state.model} ${how}`,
    generation: process.generation, model: state.model, device: card.device,
  });
  // One that it knows by name may stay if there is room for it; one that was never granted is put away.
  if (known) overLease(core, lease, state.residentBytes, chargeFor(state.residentBytes, false));
  setOver(core, lease, !known || (available(core, card).freeBytes ?? 0) < card.holdBytes);
  return lease;
}

function strayLease(core: Core, card: Card, process: Process, state: ModelState): Lease {
  const ended = state.lease !== null && wasLease(core, state.lease) && ownerOf(core, state.lease) === process.generation ? state.lease : null;
  const parts = [{ name: 'announced', kind: 'other', bytes: state.residentBytes, upFront: true }] as const;
  const policy = { ttlMs: null, pinned: false, exclusive: false };
  return {
    ...newLease(core, card, { id: ended ?? nextLeaseId(core, process.generation), generation: process.generation, model: state.model, gang: null, parts, class: 'background', policy, exclusive: false, parkable: state.parkable, profiles: false, host: null, request: null }),
    state: 'loading', residency: state.state, inFlight: state.inFlight, pinned: false,
  };
}
