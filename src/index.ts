/**
 * The library. Importing it starts nothing and loads next to nothing: the
 * broker, the wire and the engines come with the first `createOrchestrator`.
 */
import type { Orchestrator, OrchestratorOptions } from './orchestrator/index.js';

export type * from './orchestrator/index.js';
export { LeaseholdError, type ErrorCode } from '../protocol/errors.js';

/**
 * Starts, or attaches to, the broker of this machine and serves the models.
 * Rejects with a LeaseholdError: `broker_running`, `broker_lost`,
 * `config_invalid`, `model_invalid`, `device_unknown`, `limit_relation`.
 * Nothing is loaded before it is asked for, except models with `preload`.
 */
export async function createOrchestrator(options: OrchestratorOptions = {}): Promise<Orchestrator> {
  const orchestrator = await import('./orchestrator/index.js');
  return orchestrator.createOrchestrator(options);
}
