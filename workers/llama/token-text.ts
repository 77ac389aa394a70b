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
    // More waiting than a character can need: the oldest bytes are no text, and stay a replacement character.
    while (this.#waiting.length > waitingTokensMax) text += this.#flushOldest();
    return text;
  }

  /** What still waits, as it is: there is no more to come. */
  flush(): string {
    if (this.#waiting.length === 0) return '';
    return this.#release(this.#waiting.length, this.detokenize(this.#waiting, this.#before));
  }

  #flushOldest(): string {
    const oldest = this.#waiting.slice(0, 1);
    return this.#release(1, this.detokenize(oldest, this.#before));
  }

  #release(count: number, text: string): string {
    this.#before = [...this.#before, ...this.#waiting.slice(0, count)].slice(-beforeTokensMax);
    this.#waiting = this.#waiting.slice(count);
    return text;
  }
}
