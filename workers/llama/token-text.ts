/** Tokens to text as they come. A token may end inside a character: then its text waits for the rest. */

export type Detokenize = (ids: readonly number[], before: readonly number[]) => string;

const replacement = '\ufffd';
/** A character has at most four bytes, so at most three tokens can wait for its end. */
const waitingTokensMax = 3;
/** Tokens before the new ones that the tokenizer looks at to decide about spaces. */
const beforeTokensMax = 4;

export class TokenText {
  #waiting: number[] = [];
  #before: readonly number[];

  /** `before`: the tokens that the text follows, for tokenizers that spell the space between words. */
  constructor(private readonly detokenize: Detokenize, before: readonly number[]) {
    this.#before = before.slice(-beforeTokensMax);
  }

  /** The text that `id` adds: nothing while a character is incomplete, then all of it. */
  push(id: number): string {
    this.#waiting.push(id);
    let text = this.detokenize(this.#waiting, this.#before);
    if (!text.endsWith(replacement)) return this.#release(this.#waiting.length, text);
    text = '';
    // More waiting than a character can need: the oldest bytes are no text, and stay a replacement character; or they are one.
    while (this.#waiting.length > waitingTokensMax) text += this.#releaseOldest();
    return text;
  }

  /** What still waits, as it is: there is no more to come. */
  flush(): string {
    if (this.#waiting.length === 0) return '';
    return this.#release(this.#waiting.length, this.detokenize(this.#waiting, this.#before));
  }

  /** The fewest of the oldest that say the same without what follows as with it. */
  #releaseOldest(): string {
    const all = this.detokenize(this.#waiting, this.#before);
    for (let count = 1; count < this.#waiting.length; count++) {
      const [oldest, rest] = [this.#waiting.slice(0, count), this.#waiting.slice(count)];
      const text = this.detokenize(oldest, this.#before);
      if (text + this.detokenize(rest, [...this.#before, ...oldest].slice(-beforeTokensMax)) === all) return this.#release(count, text);
    }
    return this.#release(this.#waiting.length, all);
  }

  #release(count: number, text: string): string {
    this.#before = [...this.#before, ...this.#waiting.slice(0, count)].slice(-beforeTokensMax);
    this.#waiting = this.#waiting.slice(count);
    return text;
  }
}
