/** Charges that were cut down get what they lack as soon as others of their process have fallen: the oldest first, until there is no room again. */
import { setCharged, setResident } from './ledger.js';
import { reindex } from './lease-store.js';
import { must } from '../must.js';
import type { Charge, Core, Seat } from '../state.js';

export function makeGood(core: Core): void {
  for (const seat of core.relieved) {
    for (const id of seat.cut.charged) {
      const charge = chargeOf(core, seat, id);
      setCharged(core, charge, charge.wantedBytes);
      settleIndex(core, id);
      if (charge.chargedBytes < charge.wantedBytes) break;
    }
    for (const id of seat.cut.resident) {
      const charge = chargeOf(core, seat, id);
      setResident(core, charge, charge.wantedResidentBytes);
      if (charge.residentBytes < charge.wantedResidentBytes) break;
    }
  }
  core.relieved.clear();
}

function chargeOf(core: Core, seat: Seat, id: string): Charge {
  const lease = core.leases.get(id);
  const ofLease = seat.device === core.host?.device ? lease?.host?.charge : lease?.charge;
  const charge = ofLease ?? (id === seat.floor.id ? seat.floor : seat.residue);
  must(charge.id === id, `charge ${id} was cut and exists`);
  return charge;
}

/** A lease that is idle counts with its whole charge as evictable. */
function settleIndex(core: Core, id: string): void {
  const lease = core.leases.get(id);
  if (lease !== undefined) reindex(core, lease);
}
