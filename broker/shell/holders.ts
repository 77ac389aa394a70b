/**
 * Other programs that hold leases: who is on record, so that a broker that starts anew knows of their bytes. A holder
 * is put on record before a grant reaches it, and taken off when the ledger has nothing of it, or it is gone.
 */
import { LeaseholdError } from '../../protocol/index.js';
import type { ProcessIdentity } from '../supervisor/types.js';
import type { Log } from './log.js';
import type { ProcessRecord, ProcessRecords } from './process-records.js';
import type { Sessions } from './session.js';

/** How often it is looked whether a holder on record still holds anything. */
const tidyIntervalMs = 5_000;

export interface HoldersOptions {
  readonly bootId: string;
  readonly records: ProcessRecords;
  readonly sessions: Sessions;
  readonly log: Log;
  /** Whether the ledger has a lease of it, open requests apart, or bytes found with it. */
  readonly holdsAnything: (generation: string) => boolean;
  readonly floorsOf: (generation: string) => ProcessRecord['floors'];
}

export class Holders {
  readonly #options: HoldersOptions;
  /** On record: the cards that each may have bytes on. */
  readonly #cards = new Map<string, Set<string>>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: HoldersOptions) {
    this.#options = options;
    this.#timer = setInterval(() => { this.#tidy(); }, tidyIntervalMs);
    this.#timer.unref();
  }

  /** A holder found on record. */
  known(generation: string, devices: readonly string[]): void {
    this.#cards.set(generation, new Set(devices));
  }

  /** It is about to be granted bytes on a card. Our own process ends with us, and needs no record. */
  granting(generation: string, device: string): void {
    const cards = this.#cards.get(generation);
    if (cards?.has(device) === true) return;
    const session = this.#options.sessions.get(generation);
    if (session === undefined || session.role !== 'holder' || session.identity.pid === process.pid) return;
    const all = new Set(cards).add(device);
    this.#cards.set(generation, all);
    this.#write(generation, session.name, session.identity, [...all]);
  }

  /** It is gone, or holds nothing. Idempotent. */
  forget(generation: string): void {
    if (this.#cards.delete(generation)) this.#options.records.remove(generation);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #tidy(): void {
    for (const generation of [...this.#cards.keys()]) if (!this.#options.holdsAnything(generation)) this.forget(generation);
  }

  /** Without a record it is not waited for after a restart; what it has taken is measured all the same. It is written as soon as it can be. */
  #write(generation: string, name: string, identity: ProcessIdentity, devices: readonly string[]): void {
    const { records, bootId, log, floorsOf } = this.#options;
    try {
      records.writeOrOwe({
        version: 1, role: 'holder', generation, bootId, machine: records.machine, name, engine: null, spawnId: null, token: null,
        devices, floors: floorsOf(generation), threads: 0, identity, guard: null,
      });
    } catch (error) {
      const { code, message } = LeaseholdError.from(error);
      log.error({ generation, code, reason: message }, 'a holder could not be put on record: until it is, a broker that starts anew will not wait for it');
    }
  }
}
