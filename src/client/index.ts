/** Sessions with a broker, and calls on its workers. */
export type { EvictedModel, EvictOptions } from './evict-all.js';
export { connectBroker, BrokerSession, type AskOptions, type ConnectOptions, type ExplainQuestion, type PlaceOptions, type Placement, type Waiting } from './session.js';
export { HeldLease, type EvictAnswer, type EvictHandler, type EvictOrder, type HoldOptions, type Measured } from './holdings.js';
export { defaultPolicy } from './default-policy.js';
export type { BrokerEvent } from './feed.js';
export {
  openCaller, type CallOptions, type Embeddings, type GenerateOptions, type Input, type LoadedInfo, type OpenCallerOptions, type Sampling, type WorkerCaller,
} from './caller.js';
export { creditWindowTokens, type CallEvent, type CallStage, type CallTimings, type CallUsage } from './call-stream.js';
