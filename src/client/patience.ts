/** How long somebody is waited for, judged only after our own sockets were read: a program that stood still blames nobody. */
export class Patience {
  readonly #onOver: () => void;
  #timer: NodeJS.Timeout | null = null;
  #immediate: NodeJS.Immediate | null = null;
  #forMs = 0;

  constructor(onOver: () => void) {
    this.#onOver = onOver;
  }

  /** From now on, and no longer than this; a wait that was begun before is over. */
  wait(forMs: number): void {
    this.#cancelLook();
    if (this.#timer !== null && this.#forMs === forMs) {
      // Once a token: an object less than a new timer.
      this.#timer.refresh();
      return;
    }
    this.end();
    this.#forMs = forMs;
    this.#timer = setTimeout(() => { this.#look(); }, Math.min(forMs, 2 ** 31 - 1));
  }

  /** Nobody is waited for until the next `wait`. */
  end(): void {
    this.#cancelLook();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #look(): void {
    this.#immediate = setImmediate(() => {
      this.#immediate = null;
      this.end();
      this.#onOver();
    });
  }

  #cancelLook(): void {
    if (this.#immediate !== null) clearImmediate(this.#immediate);
    this.#immediate = null;
  }
}
