/** Errors as they leave the library: they name models as people do, and say what of ours has ended. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Served } from './catalogue.js';
import type { Naming } from './naming.js';

/** What the end of our own session looks like to calls that were open then. */
const endCodes: ReadonlySet<string> = new Set(['closed', 'connection_lost', 'broker_lost', 'shutting_down']);

export class Leaving {
  readonly #naming: Naming;
  readonly #closing: AbortSignal;

  constructor(naming: Naming, closing: AbortSignal) {
    this.#naming = naming;
    this.#closing = closing;
  }

  /** What `run` brings; its error as it may leave. `served`: the model that the call named. */
  async out<T>(run: () => Promise<T>, served: Served | null = null): Promise<T> {
    try {
      return await run();
    } catch (error) {
      throw this.told(error, served);
    }
  }

  told(error: unknown, served: Served | null = null): LeaseholdError {
    const typed = LeaseholdError.from(error);
    if (this.#closing.aborted && endCodes.has(typed.code)) return this.#closing.reason as LeaseholdError;
    const details = Object.fromEntries(Object.entries(typed.details).map(([name, value]) => [name, this.#naming.inText(value, served)]));
    // The wire calls requests by their types.
    if (typed.code === 'request_cancelled' && /^[a-z_]+$/.test(details['what'] ?? '')) details['what'] = 'The call';
    const same = Object.entries(details).every(([name, value]) => value === typed.details[name]);
    return same ? typed : new LeaseholdError(typed.code, details, { cause: typed });
  }
}
