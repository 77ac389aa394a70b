/** Ways in to workers: one connection for each worker, kept while it lives; placed anew when it does not. */
import type { Limits } from '../../protocol/index.js';
import { openCaller, type BrokerSession, type Placement, type Waiting, type WorkerCaller } from '../client/index.js';
import type { Served } from './catalogue.js';
import type { CallOptions, Stage } from './types.js';

export class Callers {
  readonly #session: BrokerSession;
  readonly #limits: Limits;
  readonly #open = new Map<string, Promise<WorkerCaller>>();

  constructor(session: BrokerSession, limits: Limits) {
    this.#session = session;
    this.#limits = limits;
  }

  /** A worker that serves the model, or will: finds one or has one started. `ageMs`: how long the call has waited already. */
  place(served: Served, options: CallOptions, ageMs: number): Promise<Placement> {
    const { spec, device, devices, cards } = served;
    options.onStage?.(stageOf('Finding a worker', null));
    return this.#session.place({
      model: spec.key, engine: spec.engine, estimateBytes: spec.declaredBytes, class: options.class ?? served.class, policy: spec.policy, ageMs,
      ...(device === null ? {} : { device }),
      ...(devices === undefined ? {} : { devices }),
      ...(cards === undefined ? {} : { cards }),
      ...(options.deadlineMs === undefined ? {} : { deadlineMs: options.deadlineMs }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
      onWaiting: (waiting) => options.onStage?.(stageOf(textOf(waiting), waiting.explain)),
    });
  }

  /** The connection to it: the one that is there, or a new one. */
  open(placement: Placement): Promise<WorkerCaller> {
    const known = this.#open.get(placement.generation);
    if (known !== undefined) return known;
    const opening = openCaller({ dataSocket: placement.dataSocket, ticket: placement.ticket, generation: placement.generation, caller: this.#session.generation, limits: this.#limits });
    this.#open.set(placement.generation, opening);
    const forget = (): void => { if (this.#open.get(placement.generation) === opening) this.#open.delete(placement.generation); };
    opening.then((caller) => {
      // Kept for the next call; whoever forgets to close us must not be kept by it.
      caller.relax();
      void caller.closed.then(forget);
    }, forget);
    return opening;
  }

  close(): void {
    for (const caller of this.#open.values()) caller.then((open) => { open.close(); }, () => undefined);
    this.#open.clear();
  }
}

function stageOf(text: string, explain: string | null): Stage {
  return { stage: 'placing', progress: null, text, explain };
}

function textOf(waiting: Waiting): string {
  return `Waiting for a worker: ${waiting.position === 0 ? '' : `${String(waiting.position)} before it; `}${waiting.reason}`;
}
