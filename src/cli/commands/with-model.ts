/** A command about one model of a broker that runs. */
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import type { Orchestrator } from '../../orchestrator/types.js';
import { withOrchestrator, type CommandContext } from '../context.js';
import { asPath, withReference, type ModelReference } from './model-reference.js';

/** Calls `use` with an orchestrator that is attached, and what the model is called there. */
export async function withModel<T>(context: CommandContext, reference: ModelReference, use: (orchestrator: Orchestrator, model: string) => Promise<T>): Promise<T> {
  let name = reference.written;
  const adjust = (given: OrchestratorOptions): OrchestratorOptions => {
    const called = withReference(given, reference);
    name = called.name;
    return called.options;
  };
  return withOrchestrator(context, { broker: 'attach', adjust }, async ({ orchestrator }) => use(orchestrator, name).catch((error: unknown) => { throw asPath(error, reference); }));
}
