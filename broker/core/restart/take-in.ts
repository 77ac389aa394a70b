/** Leases that an earlier broker granted go on under their ids, with their charges, for whom they were granted to: what that says as what it was granted is a claim, bounded by the card like any. */
import type { HostNeed, LeaseTerms, ModelState } from '../../../protocol/index.js';
import { isUnwatched } from '../ledger/available.js';
import { chargeFloor } from '../ledger/floors.js';
import { gangKey } from '../gangs/gang.js';
import { isBytes, withHeadroom } from '../ledger/headroom.js';
import { claimBytesMax } from '../ledger/bounds.js';
import { reportShare, wrongHostBytes } from '../memory/share.js';
import { setCharged, setResident } from '../ledger/ledger.js';
import { mayGoOn } from '../ledger/lease-id.js';
import { enterLease, newLease, setState } from '../ledger/lease-store.js';
import { attachLease } from '../processes/model.js';
import { mustLease } from '../must.js';
import { chargeFor, sumOf } from '../ledger/need.js';
import { beginRelease } from '../ledger/release.js';
import { count } from '../report.js';
import type { Card, Core, Lease, Process } from '../state.js';

/** One model of a process that this broker does not know yet. Null: there is no such lease to go on with. */
export function takeIn(core: Core, process: Process, state: ModelState): Lease | null {
  if (state.lease === null || state.state === 'absent' || !mayGoOn(core, state.lease, process.generation) || !isBytes(state.residentBytes)) return null;
  const card = core.cards.get(state.device ?? process.devices[0] ?? '');
  // A worker has no way to a card that it cannot see.
  if (card === undefined || (process.role === 'worker' && !process.devices.includes(card.device))) return null;
  if (core.leases.size >= core.options.limits.leasesMax) return null;
  chargeFloor(core, card, process.generation, process.engine);
  const terms = believableTerms(card, state);
  const lease = leaseUnder(core, card, process, state, state.lease, terms);
  enterLease(core, card, lease);
  attachLease(core, process, lease);
  if (lease.host !== null) {
    lease.host.loaded = state.state !== 'loading';
    lease.host.keepsCopy = lease.host.asked.copyBytes > 0;
  }
  setCharged(core, lease.charge, state.state === 'parked' ? state.residentBytes : Math.max(terms.chargedBytes, state.residentBytes));
  setResident(core, lease.charge, state.residentBytes);
  reportShare(core, lease, state.hostBytes, state.state);
  settleAs(core, card, lease, state);
  count(core, 'leasesTakenIn');
  return lease;
}

/** Who does not say as what it was granted, or says what cannot be, is taken at what it has, with the headroom that any lease has. */
function believableTerms(card: Card, { terms, residentBytes }: ModelState): LeaseTerms {
  const isPossible = terms !== undefined && isBytes(terms.chargedBytes) && sumOf(terms.parts) <= claimBytesMax(card) && terms.chargedBytes <= withHeadroom(claimBytesMax(card));
  if (isPossible) return terms;
  return {
    chargedBytes: chargeFor(residentBytes, false),
    parts: [{ name: 'announced', kind: 'other', bytes: residentBytes, upFront: true }],
    class: terms?.class ?? 'normal', policy: terms?.policy ?? { ttlMs: null, pinned: false, exclusive: false },
    ...(terms?.gang === undefined ? {} : { gang: terms.gang }),
  };
}

function gangOf(process: Process, { gang }: LeaseTerms): string | null {
  return gang === undefined ? null : gangKey(process.generation, gang.gang);
}

/** What came back of a gang without the rest of it is of no use: asked back. */
export function strandBroken(core: Core, process: Process, models: readonly ModelState[]): void {
  for (const { model, terms } of models) {
    if (terms?.gang === undefined) continue;
    const key = gangOf(process, terms);
    const back = [...process.leases].map((id) => mustLease(core, id)).filter((lease) => lease.model === model && lease.gang === key);
    const isBroken = back.length < terms.gang.size;
    for (const { id } of back) {
      if (isBroken) core.stranded.set(id, core.stranded.get(id) ?? core.attendedUs);
      // The card of the rest has been found since.
      else core.stranded.delete(id);
    }
  }
}

/** Of the machine's memory it was granted at most all; what cannot be bytes is nothing. */
function believableNeed(core: Core, { terms }: ModelState): HostNeed | null {
  const { host } = core;
  const need = terms?.host;
  if (host === null || need === undefined || wrongHostBytes(need) !== null) return null;
  const { totalBytes } = host;
  const neededBytes = Math.min(need.neededBytes, totalBytes);
  return {
    neededBytes, copyBytes: Math.min(need.copyBytes, totalBytes - neededBytes), peakBytes: Math.min(need.peakBytes, totalBytes),
    parkPeakBytes: need.parkPeakBytes === null ? null : Math.min(need.parkPeakBytes, totalBytes),
  };
}

function leaseUnder(core: Core, card: Card, process: Process, state: ModelState, id: string, terms: LeaseTerms): Lease {
  return {
    ...newLease(core, card, {
      id, generation: process.generation, model: state.model, gang: gangOf(process, terms), parts: terms.parts.filter((part) => part.bytes > 0), class: terms.class, policy: terms.policy,
      exclusive: terms.policy.exclusive && terms.chargedBytes < withHeadroom(sumOf(terms.parts)),
      parkable: state.parkable, profiles: process.capabilities?.profilesFreeMemory ?? false, host: believableNeed(core, state), request: null,
    }),
    residency: state.state, hostBytes: state.hostBytes, inFlight: state.inFlight,
  };
}

/** The state that its owner's word for it means. One that is leaving leaves, and is watched like any other where anything can see it leave; elsewhere its owner says when it has. */
function settleAs(core: Core, card: Card, lease: Lease, { state }: ModelState): void {
  if (state === 'loading' || state === 'resuming') {
    setState(core, lease, 'loading');
    if (lease.profiles) card.loadToken ??= lease.id;
    return;
  }
  setState(core, lease, state === 'parked' ? 'parked' : 'resident');
  if ((state !== 'parking' && state !== 'unloading') || isUnwatched(core, card)) return;
  const parks = state === 'parking';
  beginRelease(core, lease, { leftBytes: 0, toChargedBytes: 0, then: parks ? 'parked' : 'closed', rung: parks ? 'park' : 'unload', cause: 'reported' });
}
