/** llama.cpp says why something failed in its log alone; the errors of its bindings only say that it did. */
import type { EngineContext } from '../runtime/engine.js';

export type NativeLevel = 'disabled' | 'fatal' | 'error' | 'warn' | 'info' | 'log' | 'debug';

const linesMax = 100;

export class NativeLog {
  #lines: string[] = [];
  #listening = 0;

  constructor(private readonly log: EngineContext['log']) {}

  /** Handed to the bindings. Never throws. */
  readonly take = (level: string, message: string): void => {
    const text = message.trimEnd();
    if (this.#listening > 0 && this.#lines.length < linesMax) this.#lines.push(text);
    this.log(level === 'fatal' || level === 'error' ? 'error' : level === 'warn' ? 'warn' : 'debug', text, { from: 'llama.cpp' });
  };

  /**
   * Runs `work` and hands it a view of the lines (warnings and errors) that came since it began. Two at once see each
   * other's lines, so what must tell them apart takes turns.
   */
  async during<T>(work: (lines: () => Promise<readonly string[]>) => Promise<T>): Promise<T> {
    if (this.#listening === 0) this.#lines = [];
    this.#listening++;
    const from = this.#lines.length;
    try {
      return await work(async () => {
        // Lines from llama.cpp's threads arrive by the event loop, after the promise that they explain.
        for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate);
        return this.#lines.slice(from);
      });
    } finally {
      this.#listening--;
    }
  }
}
