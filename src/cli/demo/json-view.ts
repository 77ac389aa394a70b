/** The demo for programs: an object a line while it runs, and the figures, without anything else, as the last. */
import type { Io } from '../io.js';
import { writeJson } from '../report.js';
import type { Turn } from './script.js';
import type { Summary } from './summary.js';
import type { DemoView, Outcome } from './view.js';
import type { LedgerState, ServedModel } from '../../orchestrator/types.js';

export class JsonView implements DemoView {
  readonly #io: Io;

  constructor(io: Io) {
    this.#io = io;
  }

  measuring(models: readonly string[]): void {
    writeJson(this.#io, { event: 'measuring', models });
  }

  began(state: LedgerState, _models: readonly ServedModel[], turns: number): void {
    writeJson(this.#io, { event: 'began', deviceBytes: state.cards[0]?.totalBytes ?? null, turns });
  }

  asked({ number, model, question }: Turn): void {
    writeJson(this.#io, { event: 'asked', turn: number, model, question });
  }

  stage(): void {
    // The timings of the answer say it all.
  }

  token(): void {
    // The answer has the whole text.
  }

  ended({ number, model }: Turn, { result, failure, right, tookMs }: Outcome): void {
    writeJson(this.#io, { event: 'answered', turn: number, model, right, tookMs, ...(result ?? {}), failure });
  }

  ledger(): void {
    // `leasehold ps --watch --json` is for that.
  }

  finished({ models, pledges, result }: Summary): void {
    for (const model of models) writeJson(this.#io, { event: 'model', ...model });
    for (const { text, kept } of pledges) writeJson(this.#io, { event: 'promise', text, kept });
    writeJson(this.#io, { ...result });
  }

  close(): void {
    // Every line has been written.
  }
}
