/**
 * One signal that follows several for as long as a call lasts. AbortSignal.any would do, but in Node 20 a long-lived
 * source keeps a trace of every signal that ever followed it; and a listener for each call makes Node warn of a leak.
 * So each source has one listener, for all who follow it.
 */
const followersOf = new WeakMap<AbortSignal, Set<LinkedAbort>>();

export class LinkedAbort {
  readonly #own = new AbortController();
  readonly #sources: readonly AbortSignal[];

  constructor(sources: readonly (AbortSignal | undefined)[]) {
    this.#sources = sources.filter((source) => source !== undefined);
    const aborted = this.#sources.find((source) => source.aborted);
    if (aborted !== undefined) this.#own.abort(aborted.reason);
    else for (const source of this.#sources) follow(source, this);
  }

  get signal(): AbortSignal {
    return this.#own.signal;
  }

  /** The call is over: nothing is followed any more. So it is once any source has aborted. */
  release(): void {
    for (const source of this.#sources) followersOf.get(source)?.delete(this);
  }

  /** @internal */
  abort(reason: unknown): void {
    this.release();
    this.#own.abort(reason);
  }
}

function follow(source: AbortSignal, follower: LinkedAbort): void {
  const known = followersOf.get(source);
  if (known !== undefined) {
    known.add(follower);
    return;
  }
  const followers = new Set([follower]);
  followersOf.set(source, followers);
  source.addEventListener('abort', () => { for (const each of [...followers]) each.abort(source.reason); }, { once: true });
}
