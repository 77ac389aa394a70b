/** "Unload everything": each model of the ledger by itself, workers' and holders' alike; who stays is told with why (R41). */
import { LeaseholdError } from '../../protocol/index.js';

export interface EvictOptions {
  readonly signal?: AbortSignal;
  /** `host` keeps a copy where the engine can. Default `none`. */
  readonly target?: 'host' | 'none';
  readonly deadlineMs?: number;
}

/** What is asked of the session. */
interface Evictor {
  ledger<View>(options: Pick<EvictOptions, 'signal'>): Promise<View>;
  evict(model: string, options: EvictOptions): Promise<{ readonly freedBytes: number }>;
}

export interface EvictedModel {
  readonly model: string;
  /** Bytes given back on its cards, as measured. */
  readonly freedBytes: number;
  /** Why it is still there: pinned, in use until the deadline, not answering. Null: it is gone. */
  readonly stayed: LeaseholdError | null;
}

/** Far below the requests that a session may have open. */
const atOnce = 32;

/** The session is over, or its asker is: no model has stayed for that. */
const ends: readonly string[] = ['broker_lost', 'connection_lost', 'closed', 'aborted'];

/** What was there when it began, in the order of the models' keys; pins hold, and no call is cut. Throws only when it could not ask at all. */
export async function evictAll(session: Evictor, options: EvictOptions = {}): Promise<readonly EvictedModel[]> {
  const { leases } = await session.ledger<{ readonly leases: readonly { readonly model: string }[] }>(options.signal === undefined ? {} : { signal: options.signal });
  const waiting = [...new Set(leases.map(({ model }) => model))].sort();
  const outcomes: EvictedModel[] = [];
  const next = async (): Promise<void> => {
    for (let model = waiting.shift(); model !== undefined; model = waiting.shift()) outcomes.push(await evictOne(session, model, options));
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, waiting.length) }, next));
  return outcomes.sort((a, b) => (a.model < b.model ? -1 : 1));
}

async function evictOne(session: Evictor, model: string, options: EvictOptions): Promise<EvictedModel> {
  try {
    return { model, freedBytes: (await session.evict(model, options)).freedBytes, stayed: null };
  } catch (error) {
    if (!(error instanceof LeaseholdError) || options.signal?.aborted === true || ends.includes(error.code)) throw error;
    return { model, freedBytes: 0, stayed: error };
  }
}
