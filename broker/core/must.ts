/** Assertions that stay on in production: a broken one means a wrong ledger, and the broker ends rather than grant on it. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Card, Core, Lease, Process } from './state.js';

/** Throws `invariant_broken` unless `holds`. */
export function must(holds: boolean, invariant: string): asserts holds {
  if (!holds) throw new LeaseholdError('invariant_broken', { invariant });
}

export function mustLease(core: Core, id: string): Lease {
  const lease = core.leases.get(id);
  must(lease !== undefined, `lease ${id} is indexed and exists`);
  return lease;
}

export function mustCard(core: Core, device: string): Card {
  const card = core.cards.get(device);
  must(card !== undefined, `card ${device} is named by the ledger and exists`);
  return card;
}

export function mustProcess(core: Core, generation: string): Process {
  const process = core.processes.get(generation);
  must(process !== undefined, `process ${generation} is named by the ledger and exists`);
  return process;
}
