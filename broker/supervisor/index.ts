/** Processes: spawned with a guard, drained, watched, ended with everything they started, and their end confirmed. */
export { nodeCommand, nodeRuntime, type NodeCommand, type NodeRuntime } from './node-command.js';
export { processTable, startTimeOf, supervisorNotes } from './platform.js';
export { isAlive, signalIdentity, type ProcessRow, type ProcessTable, type SignalOutcome } from './process-table.js';
export { createSupervisor, type SupervisorOptions } from './supervisor.js';
export type * from './types.js';
export { findLeader } from './adopted-process.js';
