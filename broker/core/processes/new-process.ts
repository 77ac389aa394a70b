/** A process as the ledger first knows it. */
import type { Core, Process } from '../state.js';

export function newProcess(core: Core, known: Pick<Process, 'generation' | 'role' | 'name' | 'engine' | 'devices' | 'state'>): Process {
  return {
    ...known, capabilities: null, sessionOpen: false, returning: false, returnedAtUs: 0,
    startedUs: core.attendedUs, lastHeartbeatUs: core.attendedUs,
    leases: new Set(), models: new Map(), requests: new Set(), joined: new Set(), commands: new Set(), answered: new Set(), gangsOver: new Map(), floorsUnfound: new Map(),
    startedFor: null, endCause: null, endWhenIdle: null, growth: null,
  };
}
