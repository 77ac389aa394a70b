/** The broker, for whoever runs one: the orchestrator, the daemon, tests. */
export { createBroker, type Broker, type BrokerOptions, type OwnedCard } from './broker.js';
export { effectiveLimits } from './effective-limits.js';
export type { EngineCommand } from './engines.js';
export { FrugalLog } from './frugal-log.js';
export { createLog, silentLog, steadyLog, redactedPaths, type Log } from './log.js';
export { livingWorkers, type LivingWorker } from './process-records.js';
export { cardLocksPath, defaultStatePath, readStateFolder, stateNames, type StateFolder } from './state-folder.js';
export type { CardReader } from './sampler.js';
export { requireReader, writeReason } from './private-file.js';
export type { UntimedEvent } from './loop.js';
export { told } from './told.js';
