/** How far a staging is, told at a sane rate. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { Control } from './task.js';

export interface StagingProgress {
  readonly stage: 'cached' | 'waiting' | 'checking' | 'download';
  /** What is being done, in words. */
  readonly text: string;
  readonly files: { readonly done: number; readonly total: number };
  readonly bytes: { readonly done: number; readonly total: number };
  /** Of what is fetched, over the last seconds; null before anything was. */
  readonly bytesPerSecond: number | null;
}

const tellEveryMs = 250;
const rateOverMs = 5_000;

/** Counts what each file has of its bytes. What a listener throws aborts the staging. */
export class Meter {
  readonly #tell: (progress: StagingProgress) => void;
  readonly #abort: AbortController;
  readonly #timer: NodeJS.Timeout;
  readonly #controls = new Map<string, Control>();
  readonly #samples: { readonly atMs: number; readonly bytes: number }[] = [];
  #stage: StagingProgress['stage'] = 'checking';
  #text = 'looking at what is there';
  #total = { files: 0, bytes: 0 };
  #finished = { files: 0, bytes: 0 };
  #last = '';

  constructor(tell: (progress: StagingProgress) => void, abort: AbortController) {
    this.#tell = tell;
    this.#abort = abort;
    this.#timer = setInterval(() => { this.#say(); }, tellEveryMs);
  }

  /** A change of what is done is told at once. */
  begin(stage: StagingProgress['stage'], text: string): void {
    if (stage === this.#stage && text === this.#text) return;
    this.#stage = stage;
    this.#text = text;
    this.#say();
  }

  expect(files: number, bytes: number): void {
    this.#total = { files, bytes };
  }

  /** Follows a task that works on a file. */
  follow(path: string, control: Control): void {
    this.#controls.set(path, control);
  }

  finish(path: string, bytes: number): void {
    this.#controls.delete(path);
    this.#finished = { files: this.#finished.files + 1, bytes: this.#finished.bytes + bytes };
  }

  end(): void {
    clearInterval(this.#timer);
    this.#say();
  }

  #say(): void {
    const doneBytes = this.#finished.bytes + [...this.#controls.values()].reduce((sum, control) => sum + control.doneBytes, 0);
    const nowMs = performance.now();
    this.#samples.push({ atMs: nowMs, bytes: doneBytes });
    while ((this.#samples[0]?.atMs ?? nowMs) < nowMs - rateOverMs) this.#samples.shift();
    const [first] = this.#samples;
    const overMs = nowMs - (first?.atMs ?? nowMs);
    const rate = this.#stage === 'download' && first !== undefined && overMs > 0 ? Math.max(0, Math.round((doneBytes - first.bytes) / overMs * 1_000)) : null;
    const progress: StagingProgress = { stage: this.#stage, text: this.#text, files: { done: this.#finished.files, total: this.#total.files }, bytes: { done: doneBytes, total: this.#total.bytes }, bytesPerSecond: rate };
    const key = JSON.stringify([progress.stage, progress.text, progress.files, progress.bytes]);
    if (key === this.#last) return;
    this.#last = key;
    try {
      this.#tell(progress);
    } catch (error) {
      clearInterval(this.#timer);
      this.#abort.abort(LeaseholdError.from(error));
    }
  }
}
