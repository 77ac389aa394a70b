/** Assertions that stay on in production: a broken one means a wrong ledger, and the broker ends rather than grant on it. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Card, Core, Lease, Process } from './state.js';

/** Throws `invariant_broken` unless `holds`. */
export function must(holds: boolean, invariant: string): asserts holds {
  if (!holds) broken(invariant);
}

/** Throws `invariant_broken`. The sentence is made only then: what is looked up a thousand times a step costs no strings. */
function broken(invariant: string): never {
  throw new LeaseholdError('invariant_broken', { invariant });
}

export function mustLease(core: Core, id: string): Lease {
  return core.leases.get(id) ?? broken(`lease ${id} is indexed and exists`);
}

/** The card of that name, or the machine's memory. */
export function cardOf(core: Core, device: string): Card | undefined {
  return core.cards.get(device) ?? (core.host?.device === device ? core.host : undefined);
}

/** Every ledger: the cards, and the machine's memory where it is leased. */
export function ledgersOf(core: Core): readonly Card[] {
  return core.host === null ? [...core.cards.values()] : [...core.cards.values(), core.host];
}

export function mustCard(core: Core, device: string): Card {
  return cardOf(core, device) ?? broken(`card ${device} is named by the ledger and exists`);
}

export function mustProcess(core: Core, generation: string): Process {
  return core.processes.get(generation) ?? broken(`process ${generation} is named by the ledger and exists`);
}
