/**
 * Names of leases. A name begins with whose it is, so that a broker which has
 * never heard of it can tell who may come back to it: that name was proven when
 * the process attached, and nothing has to be written down at a grant.
 */
import type { Core } from '../state.js';

const pattern = /^([0-9A-Za-z]+-[ws]\d+)-(?:([0-9A-Za-z]+)-)?l(\d+)$/;

/** A name that no other lease has or had: `<generation>-l<n>`, and for a process that is older than this broker `<generation>-<bootId>-l<n>`. */
export function nextLeaseId(core: Core, generation: string): string {
  const { bootId } = core.options;
  const number = `l${String(core.nextLease++)}`;
  return generation.startsWith(`${bootId}-`) ? `${generation}-${number}` : `${generation}-${bootId}-${number}`;
}

/** Whose lease it is, by the ledger or else by its name; null: no broker gives such a name. */
export function ownerOf(core: Core, id: string): string | null {
  return core.leases.get(id)?.generation ?? pattern.exec(id)?.[1] ?? null;
}

/** Whether a process may go on with a lease of that name: it is its own, nobody has it now, and this broker will not give it to another. */
export function mayGoOn(core: Core, id: string, generation: string): boolean {
  const [, owner, grantedBy] = pattern.exec(id) ?? [];
  if (owner !== generation || core.leases.has(id)) return false;
  const { bootId } = core.options;
  return (grantedBy ?? bootOf(generation)) !== bootId || wasLease(core, id);
}

/** A lease of this broker that is no more: its number has been given out. */
export function wasLease(core: Core, id: string): boolean {
  const [, owner, grantedBy, digits] = pattern.exec(id) ?? [];
  if (owner === undefined || (grantedBy ?? bootOf(owner)) !== core.options.bootId || core.leases.has(id)) return false;
  const number = Number(digits);
  return Number.isSafeInteger(number) && number >= 1 && number < core.nextLease;
}

/** The refusal for a process that names what is another's; null: it does not. */
export function notYours(core: Core, id: string, generation: string): { readonly code: 'lease_not_yours'; readonly details: Readonly<Record<string, string>>; readonly text: string } | null {
  const owner = ownerOf(core, id);
  return owner === null || owner === generation ? null : { code: 'lease_not_yours', details: { lease: id, owner, generation }, text: `lease ${id} belongs to ${owner}` };
}

function bootOf(generation: string): string {
  return generation.slice(0, generation.indexOf('-'));
}
