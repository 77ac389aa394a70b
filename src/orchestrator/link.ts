/**
 * The way to a broker: one session, the connections to its workers, and the news of them. When that broker is gone the
 * next use opens a way anew: to whoever has taken its place, or by taking it ourselves (D9).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError } from '../../protocol/index.js';
import type { ByteStream } from '../../protocol/node/index.js';
import type { Log } from '../../broker/shell/index.js';
import { connectBroker, type BrokerSession } from '../client/index.js';
import { Callers } from './callers.js';
import type { Reach } from './connection.js';
import type { BrokerChange, BrokerLoss } from './options.js';
import { Obituaries } from './obituaries.js';

export interface Link {
  readonly reach: Reach;
  readonly session: BrokerSession;
  readonly callers: Callers;
  readonly obituaries: Obituaries;
  /** The broker's process; null: this one. */
  readonly pid: number | null;
}

export interface LinksOptions {
  /** A broker within reach, as the options of the orchestrator want it. */
  readonly find: () => Promise<Reach>;
  /** At the start one that is just ending is as good as none: its refusal stands, and no next one is waited for. */
  readonly onlyLiving: boolean;
  /** Called with every new session before anybody uses it; resolves to the process that the broker is, null for this one. */
  readonly greet: (reach: Reach, session: BrokerSession) => Promise<number | null>;
  readonly onLost: (loss: BrokerLoss) => void;
  readonly onChange: (change: BrokerChange) => void;
  readonly log: Log;
}

/** A broker that is just ending refuses whoever comes; soon there is another, or none. */
const endingCodes: ReadonlySet<string> = new Set(['shutting_down', 'broker_lost', 'connection_lost', 'connect_failed']);
const endingMs = 30_000;
const endingPauseMs = 50;

export class Links {
  readonly #options: LinksOptions;
  #current: Link;
  #opening: Promise<Link> | null = null;

  private constructor(options: LinksOptions, first: Link) {
    this.#options = options;
    this.#current = first;
  }

  static async open(options: LinksOptions): Promise<Links> {
    return new Links(options, await openLink(options, options.find, endingAtStart(options)));
  }

  /** The last one that was had, alive or not. */
  get current(): Link {
    return this.#current;
  }

  /** One whose session is open as far as is known. Rejects with why there is none. */
  get(): Promise<Link> {
    if (this.#current.session.open) return Promise.resolve(this.#current);
    this.#opening ??= this.#reopen().finally(() => { this.#opening = null; });
    return this.#opening;
  }

  /** Ends the session, and the broker where it is ours: at once when `hurry` aborts. */
  async close(hurry?: AbortSignal): Promise<void> {
    // What is being opened is waited for: it may be a broker of our own.
    await this.#opening?.catch(() => undefined);
    const { reach, session, callers } = this.#current;
    callers.close();
    await session.close();
    await reach.owned?.close(hurry);
  }

  async #reopen(): Promise<Link> {
    const { reach, callers, pid } = this.#current;
    callers.close();
    this.#options.log.warn({ socket: reach.socketPath }, 'the broker was lost; looking for another');
    if (!reach.alive()) await reach.owned?.close();
    this.#current = await openLink(this.#options, reach.alive() ? () => Promise.resolve(reach) : this.#options.find).catch((error: unknown) => { throw lostForGood(LeaseholdError.from(error)); });
    const { reach: found, session } = this.#current;
    if (found !== reach) {
      const change = { lostPid: pid, ownsBroker: found.owned !== null, socketPath: found.socketPath, devices: session.devices.map(({ device }) => device) };
      this.#options.log.warn(change, 'the broker is another one now');
      this.#options.onChange(change);
    }
    return this.#current;
  }
}

/** There was one: that none is found is no news of a folder, but of its end. */
function lostForGood(error: LeaseholdError): LeaseholdError {
  return error.code === 'broker_missing' ? new LeaseholdError('broker_lost', { reason: `it has ended, and ${error.details['reason'] ?? 'no other answers'}` }, { cause: error, help: error.help }) : error;
}

/** What is done when the first broker that is met is just ending: told once; thrown where no other is waited for. */
function endingAtStart({ onlyLiving, onLost }: LinksOptions): (error: LeaseholdError) => void {
  let told = false;
  return (error) => {
    if (error.code !== 'shutting_down') return;
    if (onlyLiving) throw error;
    if (!told) onLost({ pid: null, graceMs: endingMs, stopped: true });
    told = true;
  };
}

async function openLink(options: LinksOptions, find: () => Promise<Reach>, onEnding: (error: LeaseholdError) => void = () => undefined): Promise<Link> {
  const giveUpMs = performance.now() + endingMs;
  for (;;) {
    const reach = await find();
    try {
      return await linkTo(reach, options);
    } catch (error) {
      await reach.owned?.close();
      const typed = LeaseholdError.from(error);
      if (reach.owned !== null || !endingCodes.has(typed.code) || performance.now() > giveUpMs) throw error;
      onEnding(typed);
    }
    await pause(endingPauseMs);
  }
}

/** A broker of our own does not come back; it is made anew. */
export function wayBack(reach: Reach): { readonly dial?: () => Promise<ByteStream> } {
  return reach.owned === null ? { dial: () => reach.dial() } : {};
}

async function linkTo(reach: Reach, { greet, onLost, log }: LinksOptions): Promise<Link> {
  let pid: number | null = null;
  const session = await connectBroker({
    stream: await reach.dial(), ...wayBack(reach), secret: reach.secret, role: 'client', name: 'orchestrator', limits: reach.limits,
    // One that says so itself has ended in order; else there is only an end of file.
    onDetached: (graceMs, { code }) => { onLost({ pid, graceMs, stopped: code === 'broker_lost' }); },
  });
  try {
    pid = await greet(reach, session);
  } catch (error) {
    await session.close();
    throw error;
  }
  session.relax();
  const obituaries = new Obituaries();
  obituaries.listen(session).catch((error: unknown) => { log.debug({ reason: String(error) }, 'no more news of workers'); });
  return { reach, session, obituaries, pid, callers: new Callers(session, reach.limits) };
}
