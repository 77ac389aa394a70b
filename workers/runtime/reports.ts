/**
 * Reports to the ledger: residency (acknowledged) and use (absolute counts).
 * Use is coalesced, but never left behind by an answer; residency is flushed,
 * bounded, before a caller hears of its call's end (D25).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaseholdError, type LeasePart, type ResidencyState } from '../../protocol/index.js';
import type { ControlChannel } from './control.js';

export interface ResidencyReport {
  readonly lease: string;
  readonly model: string;
  readonly state: ResidencyState;
  readonly residentBytes: number;
  readonly hostBytes: number;
  readonly parts: readonly LeasePart[] | null;
  readonly loadMs: number | null;
}

interface UseReport {
  readonly model: string;
  readonly lease: string;
  readonly inFlight: number;
  readonly queued: number;
}

export interface ReportsOptions {
  readonly residencyFlushMs: number;
  /** An acknowledgement later than this is given up. */
  readonly acknowledgeMs: number;
  readonly onRefused: (report: ResidencyReport, error: LeaseholdError) => void;
}

export class Reports {
  readonly #channel: ControlChannel;
  readonly #options: ReportsOptions;
  readonly #unacknowledged = new Set<Promise<void>>();
  readonly #use = new Map<string, UseReport>();
  readonly #toldUse = new Map<string, string>();
  #scheduled: NodeJS.Immediate | null = null;
  #seq = 0;

  constructor(channel: ControlChannel, options: ReportsOptions) {
    this.#channel = channel;
    this.#options = options;
  }

  /** Sends a report; the ledger takes it in before what is sent after it. */
  residency(report: ResidencyReport): void {
    if (!this.#channel.open) return;
    this.#seq += 1;
    const acknowledged = this.#channel
      .request({ type: 'residency', seq: this.#seq, ...report }, { timeoutMs: this.#options.acknowledgeMs })
      .then(() => undefined, (error: unknown) => { this.#options.onRefused(report, LeaseholdError.from(error)); })
      .finally(() => this.#unacknowledged.delete(acknowledged));
    this.#unacknowledged.add(acknowledged);
  }

  /** Notes how a model is used now; told soon, once for all changes of one turn of the loop. */
  use(model: string, lease: string, inFlight: number, queued: number): void {
    this.#use.set(lease, { model, lease, inFlight, queued });
    this.#scheduled ??= setImmediate(() => { this.flushUse(); });
  }

  /** Tells at once what was noted. To be called before any answer. */
  flushUse(): void {
    if (this.#scheduled !== null) clearImmediate(this.#scheduled);
    this.#scheduled = null;
    for (const [lease, use] of this.#use) {
      const text = JSON.stringify(use);
      if (this.#toldUse.get(lease) === text) continue;
      this.#toldUse.set(lease, text);
      this.#seq += 1;
      this.#channel.send({ type: 'in_use', seq: this.#seq, ...use });
    }
    this.#use.clear();
  }

  /** The broker is another, or has missed something: all is told anew. */
  retell(): void {
    this.#toldUse.clear();
  }

  /** A lease that is over leaves nothing behind here. */
  forget(lease: string): void {
    this.#use.delete(lease);
    this.#toldUse.delete(lease);
  }

  /** Resolves when all residency reports are acknowledged, or `residencyFlushMs` has passed. */
  async flush(): Promise<void> {
    this.flushUse();
    if (this.#unacknowledged.size === 0) return;
    const late = new AbortController();
    const patience = sleep(this.#options.residencyFlushMs, undefined, { signal: late.signal }).catch(() => undefined);
    await Promise.race([Promise.all(this.#unacknowledged), patience]);
    late.abort();
  }
}
