/** Ends text at the first stop string, wherever token borders fall; text that may be the beginning of one is held back. */

export interface StopResult {
  /** Text that is certain not to belong to a stop string. */
  readonly text: string;
  /** A stop string has been found; `text` ends before it, and nothing after it counts. */
  readonly stopped: boolean;
}

export class StopStrings {
  #held = '';

  /** `stops` are not empty. */
  constructor(private readonly stops: readonly string[]) {}

  push(text: string): StopResult {
    if (this.stops.length === 0) return { text, stopped: false };
    const held = this.#held + text;
    const at = this.#firstStop(held);
    if (at !== null) {
      this.#held = '';
      return { text: held.slice(0, at), stopped: true };
    }
    const keep = this.#possibleBeginning(held);
    this.#held = held.slice(held.length - keep);
    return { text: held.slice(0, held.length - keep), stopped: false };
  }

  /** What is held: no more text comes, so it was no stop string. */
  flush(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }

  /** Where the stop string begins that is complete first: the rule that does not depend on how the text was cut. */
  #firstStop(text: string): number | null {
    let first: { readonly start: number; readonly end: number } | null = null;
    for (const stop of this.stops) {
      const start = text.indexOf(stop);
      const end = start + stop.length;
      if (start >= 0 && (first === null || end < first.end || (end === first.end && start < first.start))) first = { start, end };
    }
    return first?.start ?? null;
  }

  /** Length of the longest end of `text` that some stop string begins with. */
  #possibleBeginning(text: string): number {
    const longest = Math.max(...this.stops.map((stop) => stop.length)) - 1;
    for (let length = Math.min(longest, text.length); length > 0; length--) {
      const end = text.slice(text.length - length);
      if (this.stops.some((stop) => stop.length > length && stop.startsWith(end))) return length;
    }
    return 0;
  }
}
