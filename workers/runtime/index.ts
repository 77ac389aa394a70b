/** What workers written in TypeScript build on: an engine in, a worker process out. */
export { runWorker } from './run.js';
export { attachWorker, type AttachOptions, type AttachedWorker } from './attach.js';
export { readEnvironment, type WorkerEnvironment } from './environment.js';
export { createDoor, leaseOf, references, stepDoor, wakeAtUs } from './door.js';
export type * from './door-types.js';
export type * from './engine.js';
