/** When a model may be put away for no request's sake: those of a gang together or not at all. */
import { isBusy } from './spared.js';
import { companions } from '../gangs/gang.js';
import { isLoading } from '../ledger/lease-store.js';
import { mustCard } from '../must.js';
import type { Core, Lease } from '../state.js';

/** Nothing else that measures free memory loads on any of its cards (B14), and its process listens. */
export function mayBePutAway(core: Core, lease: Lease): boolean {
  const process = core.processes.get(lease.generation);
  if (process?.state !== 'ready' || !process.sessionOpen) return false;
  return companions(core, lease).every((member) => {
    const { loadToken } = mustCard(core, member.device);
    return loadToken === null || loadToken === member.id;
  });
}

/** No lease of its gang is in use, loads or is on its way somewhere. */
export function isGangIdle(core: Core, lease: Lease): boolean {
  return lease.gang === null || companions(core, lease).every((member) => member.job === null && member.release === null && !isLoading(member) && !isBusy(core, member));
}
