/** Where a broker's state lives, and who of an earlier one does, for commands that look for a running one. */
export type { LivingWorker } from '../../broker/shell/index.js';
export { defaultStatePath, livingWorkers, readStateFolder } from '../../broker/shell/index.js';
