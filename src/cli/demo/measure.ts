/** The first pass: every model is loaded once on a card with room for all, to learn what it is charged. */
import type { Orchestrator } from '../../orchestrator/types.js';
import type { TinyModelName } from '../../orchestrator/shipped-models.js';

/** Far more than the models need together; the card is only a number. */
export const roomyCard = 'sim:1GiB';

/**
 * Bytes each model is charged at its highest, headroom and process floor included, in the order of `models`: at the
 * grant, by its estimate, or after the load, by what was measured.
 */
export async function measureCharges(orchestrator: Orchestrator, models: readonly TinyModelName[], signal: AbortSignal): Promise<readonly number[]> {
  await Promise.all(models.map((model) => orchestrator.load(model, { signal })));
  const { leases, processes } = await orchestrator.ledger();
  return Promise.all(models.map(async (model) => {
    const key = orchestrator.models.find(({ name }) => name === model)?.key;
    const lease = leases.find((one) => one.model === key);
    if (lease === undefined) throw new Error(`${model} was loaded and has no lease`);
    const floorBytes = processes.find(({ generation }) => generation === lease.generation)?.floorBytes ?? 0;
    const grant = (await orchestrator.explain(model, 20)).find(({ verdict }) => verdict === 'granted');
    return Math.max(grant?.numbers?.needBytes ?? 0, lease.chargedBytes + floorBytes);
  }));
}
