/** How workers ended, remembered for a while: a caller sees only a closed connection, and should be told why. */
import { LeaseholdError } from '../../protocol/index.js';
import type { BrokerSession } from '../client/index.js';

interface Obituary {
  readonly how: string;
  readonly lastLines: readonly string[];
  /** Its broker ends, and took it along. */
  readonly brokerEnds: boolean;
  /** The silence that it was ended for; null: it was not. */
  readonly silentMs: number | null;
}

const rememberedMax = 64;
/** The broker tells of an exit soon after the connection broke; a caller waits this long for it at most. */
const newsWithinMs = 2_000;
/** What the end of a worker looks like to its callers. */
const signsOfAnEnd: ReadonlySet<string> = new Set(['connection_lost', 'connect_failed', 'shutting_down']);

export class Obituaries {
  readonly #known = new Map<string, Obituary>();
  readonly #waiting = new Map<string, (() => void)[]>();
  /** The session is over: no news will come. */
  #over = false;

  /** Listens until the session ends. */
  async listen(session: BrokerSession): Promise<void> {
    try {
      for await (const event of session.subscribe()) {
        if (event.name !== 'obituary') continue;
        const { generation, how, lastLines, brokerEnds, silentMs } = event.data as unknown as { readonly generation: string } & Obituary;
        this.#remember(generation, { how, lastLines, brokerEnds, silentMs });
      }
    } finally {
      this.#over = true;
      for (const generation of [...this.#waiting.keys()]) this.#wake(generation);
    }
  }

  /** `error` as it is, what the end of its broker means to the call, or `worker_exited` (`worker_silent`, when it was ended for that) with how and the last lines when that worker is known to have ended. */
  async explain(error: unknown, generation: string | null): Promise<LeaseholdError> {
    const typed = LeaseholdError.from(error);
    if (generation === null || !signsOfAnEnd.has(typed.code)) return typed;
    const obituary = this.#known.get(generation) ?? await this.#news(generation);
    if (obituary === undefined) return typed;
    if (obituary.brokerEnds) return brokerEnded(typed);
    const details = { ...typed.details, generation, how: obituary.how, lastLines: obituary.lastLines.slice(-5).join('\n') };
    if (obituary.silentMs !== null) return new LeaseholdError('worker_silent', { ...details, silentMs: obituary.silentMs }, { cause: typed });
    return new LeaseholdError('worker_exited', details, { cause: typed });
  }

  #remember(generation: string, obituary: Obituary): void {
    this.#known.set(generation, obituary);
    if (this.#known.size > rememberedMax) for (const oldest of this.#known.keys()) { this.#known.delete(oldest); break; }
    this.#wake(generation);
  }

  #wake(generation: string): void {
    for (const wake of this.#waiting.get(generation) ?? []) wake();
    this.#waiting.delete(generation);
  }

  async #news(generation: string): Promise<Obituary | undefined> {
    if (this.#over) return undefined;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, newsWithinMs);
      const wake = (): void => { clearTimeout(timer); resolve(); };
      this.#waiting.set(generation, [...(this.#waiting.get(generation) ?? []), wake]);
    });
    return this.#known.get(generation);
  }
}

/** What was sent of an answer cannot be repeated unseen; a call without any is for the next broker. */
function brokerEnded(cause: LeaseholdError): LeaseholdError {
  const { tokensReceived = '0' } = cause.details;
  if (tokensReceived !== '0') return new LeaseholdError('answer_cut', cause.details, { cause });
  return new LeaseholdError('shutting_down', { ...cause.details, what: 'The broker' }, { cause });
}
