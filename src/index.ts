/**
 * The library. Importing it starts nothing and loads next to nothing: the
 * broker, the wire and the engines come with the first `createOrchestrator`.
 */
import type { EstimateAnswer, EstimateRequest } from './estimate.js';
import type { Orchestrator, OrchestratorOptions } from './orchestrator/index.js';

export type { CardEstimate, EstimateAnswer, EstimateRequest, Figure, ModelEstimate } from './estimate.js';
export type * from './orchestrator/index.js';
export { LeaseholdError, type ErrorCode } from '../protocol/errors.js';

/**
 * Starts, or attaches to, the broker of this machine and serves the models.
 * Rejects with a LeaseholdError: `broker_running`, `broker_missing`, `broker_lost`,
 * `config_invalid`, `model_invalid`, `device_unknown`, `limit_relation`.
 * Nothing is loaded before it is asked for, except models with `preload`.
 */
export async function createOrchestrator(options: OrchestratorOptions = {}): Promise<Orchestrator> {
  const orchestrator = await import('./orchestrator/index.js');
  return orchestrator.createOrchestrator(options);
}

/**
 * The bytes that a model will need, card by card, before any card is touched:
 * a profile (or its id), a GGUF file or a folder, or `owner/name[@revision][:file-or-quant]`
 * of a hub. Each figure has the most, the least and how it was got; `source` says
 * whether the whole is declared, estimated or learned from loads.
 * Rejects with a LeaseholdError: `estimate_unknown` (naming the field that is
 * missing; `declaredBytes` answers it), `model_invalid`, `input_invalid`, or what the hub refuses with.
 */
export async function estimate(model: string | { readonly id: string }, request: EstimateRequest = {}): Promise<EstimateAnswer> {
  const { estimateModel } = await import('./estimate.js');
  return estimateModel(model, request);
}
