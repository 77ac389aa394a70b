/** Why nothing on a card can make room for a request: for its requester, and as the record of who was considered. */
import { explainVictims } from '../eviction/plan.js';
import type { ExplainedVictim } from '../explain.js';
import { listed } from '../report.js';
import type { Card, Core, Waiter } from '../state.js';
import { seekerOf } from './seeker.js';

export interface Staying {
  /** One clause for a person. */
  readonly text: string;
  /** Models that would be victims, were they not pinned. */
  readonly pinned: readonly string[];
  readonly considered: readonly ExplainedVictim[];
}

/** In the order in which they are told: what an operator can change comes first. */
const clauses: Readonly<Record<string, (models: string, several: boolean) => string>> = {
  pinned: (models, several) => `${models} ${several ? 'are' : 'is'} pinned (leasehold pin --off MODEL)`,
  in_use: (models, several) => `${models} ${several ? 'are' : 'is'} in use`,
  loading: (models, several) => `${models} ${several ? 'are' : 'is'} loading`,
  minimum_residency: (models, several) => `${models} ${several ? 'have' : 'has'} only just been loaded`,
  damped: (models, several) => `${models} ${several ? 'stay' : 'stays'} for a while, with calls in the queue, because the card thrashes`,
  already_leaving: (models, several) => `${models} ${several ? 'are' : 'is'} leaving already`,
  not_answering: (models, several) => `${models} ${several ? 'do' : 'does'} not give way when asked`,
  spared: (models, several) => `${models} ${several ? 'have' : 'has'} been used since it first failed to load`,
  load_token: (models, several) => `${models} ${several ? 'have' : 'has'} another card on which free memory is being measured`,
  insufficient: (models) => `${models} would not be enough`,
};

export function whatStays(core: Core, card: Card, waiter: Waiter): Staying {
  const seeker = seekerOf(core, waiter);
  const considered = explainVictims(core, card, seeker, null);
  const modelsBy = (reason: string): readonly string[] => [...new Set(considered.flatMap(({ passedOver, model }) => (passedOver === reason && model !== null ? [model] : [])))];
  const told = Object.entries(clauses).flatMap(([reason, clause]) => {
    const models = modelsBy(reason);
    return models.length === 0 ? [] : [clause(listed(models), models.length > 1)];
  });
  return { text: told.length === 0 ? 'nothing is there that could be put away' : told.join(', '), pinned: modelsBy('pinned'), considered };
}
