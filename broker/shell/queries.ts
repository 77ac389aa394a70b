/** Answers to those who only look: the ledger, and why. */
import type { ControlMessage } from '../../protocol/index.js';
import { explainRecords, ledgerView, type Core } from '../core/index.js';
import { ledgerJson } from './fitting-ledger.js';
import { monotonicUs } from '../../protocol/node/clock.js';

type Question = Extract<ControlMessage, { type: 'ledger' | 'explain' }>;

/** Facts that the shell adds to the core's ledger. */
export type ShellFacts = () => Readonly<Record<string, unknown>>;

export class Queries {
  readonly #core: Core;
  readonly #facts: ShellFacts;
  readonly #answerBytesMax: number;

  /** An answer takes at most half a frame: what surrounds it has room too. */
  constructor(core: Core, facts: ShellFacts, frameBytesMax: number) {
    this.#core = core;
    this.#facts = facts;
    this.#answerBytesMax = frameBytesMax / 2;
  }

  answer(message: Question): ControlMessage {
    if (message.type === 'ledger') {
      return { type: 'ledger_state', id: message.id, json: ledgerJson(ledgerView(this.#core, monotonicUs()), this.#facts(), this.#answerBytesMax) };
    }
    return { type: 'explanation', id: message.id, records: this.#fitting(explainRecords(this.#core, { id: message.explain, model: message.model, count: message.count }).map((record) => JSON.stringify(record))) };
  }

  /** The newest that fit into one answer; the oldest are left out. */
  #fitting(records: readonly string[]): readonly string[] {
    let bytes = 0;
    return records.filter((record) => (bytes += Buffer.byteLength(record)) <= this.#answerBytesMax);
  }
}
