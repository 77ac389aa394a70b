/** Broker, workers and models as one object: what `import { createOrchestrator } from 'leasehold'` gives. */
export { createOrchestrator, openOrchestrator, modelFaults, servedModels } from './orchestrator.js';
export { defaultStatePath, readStateFolder } from './state.js';
export { unknownModel } from './catalogue.js';
export { createLog, silentLog, requireReader, writeReason, type EngineCommand, type Log } from '../../broker/shell/index.js';
export type { SimulatedCardInHand } from './connection.js';
export type { BrokerChange, BrokerLoss, HostMemoryOptions, ModelOptions, OrchestratorOptions } from './options.js';
export type * from './types.js';
export type { EvictAnswer, EvictedModel, EvictHandler, EvictOrder, HeldLease, HoldOptions, Measured } from '../client/index.js';
export type { ExplainRecord, ExplainedVictim } from '../../broker/core/explain.js';
export type { CardView, LeaseView, LedgerView, ProcessView, ThrashView, WaiterView } from '../../broker/core/view.js';
