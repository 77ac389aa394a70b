/** A model that is not loaded itself, though the same file is: a daemon of another installation serves it from a folder of its own. */
import { otherCopies } from '../../../protocol/node/index.js';
import type { LedgerState, Orchestrator, ServedModel } from '../../orchestrator/types.js';
import type { Io } from '../io.js';
import { writeLine } from '../report.js';
import { createNames } from '../views/names.js';

type Lease = LedgerState['leases'][number];

export interface Copies {
  /** Leases of the model itself. */
  readonly own: readonly Lease[];
  /** What the other copies are called that are loaded; none where the model itself is. */
  readonly alsoLoaded: readonly string[];
}

/** `model`: a name, an alias or a key. */
export async function copiesOf(orchestrator: Orchestrator, model: string): Promise<Copies> {
  const { models } = orchestrator;
  const key = models.find(({ name, aliases }) => name === model || aliases.includes(model))?.key ?? model;
  return copiesIn(await orchestrator.ledger(), key, models);
}

export function copiesIn({ leases }: Pick<LedgerState, 'leases'>, key: string, models: readonly ServedModel[]): Copies {
  const own = leases.filter((lease) => lease.model === key);
  const others = own.length > 0 ? [] : otherCopies(key, leases.map((lease) => lease.model));
  return { own, alsoLoaded: others.map((other) => createNames(models).model(other)) };
}

/** `Also loaded, …: 'facts@llama#1a2b3c4d'; give that name to evict it.`; nothing where there is none. */
export function tellCopies(io: Io, alsoLoaded: readonly string[], purpose: string): void {
  if (alsoLoaded.length === 0) return;
  const names = alsoLoaded.map((name) => `'${name}'`).join(', ');
  writeLine(io, `Also loaded, from a file of the same name: ${names}; give ${alsoLoaded.length === 1 ? 'that name' : 'one of those names'} to ${purpose}.`);
}
