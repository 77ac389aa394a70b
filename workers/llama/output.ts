/** From sampled ids to what a caller sees: text that is whole and certain, thought or answer, and when to stop. */
import { StopStrings } from './stop-strings.js';
import { ThoughtSplitter, type ThoughtTags } from './thought.js';
import { TokenText, type Detokenize } from './token-text.js';

export interface OutputPiece {
  readonly text: string;
  readonly thought: boolean;
  /** A stop string ended the answer. */
  readonly stopped: boolean;
}

export interface OutputOptions {
  readonly detokenize: Detokenize;
  readonly tags: ThoughtTags | null;
  readonly opensInThought: boolean;
  /** Watched for in the answer alone: a blank line in a thought must not cost the answer. */
  readonly stops: readonly string[];
  /** The prompt's last tokens. */
  readonly before: readonly number[];
}

export class Output {
  readonly #splitter: ThoughtSplitter;
  readonly #stops: StopStrings;
  #text: TokenText;
  #thoughtTokens = 0;

  constructor(private readonly options: OutputOptions) {
    this.#splitter = new ThoughtSplitter(options.tags, options.opensInThought);
    this.#stops = new StopStrings(options.stops);
    this.#text = new TokenText(options.detokenize, options.before);
  }

  /** Tokens between the borders of the thought; the borders are not counted. */
  get thoughtTokens(): number {
    return this.#thoughtTokens;
  }

  /** Takes one token. With `last` everything held back comes out. */
  push(id: number, last: boolean): OutputPiece {
    const wasThinking = this.#splitter.thinking;
    const role = this.#splitter.push(id, (token) => this.#isSpace(token));
    if (role === 'tag') return this.#border(id, wasThinking);
    if (role === 'thought') this.#thoughtTokens++;
    const text = this.#text.push(id) + (last ? this.#text.flush() : '');
    return role === 'thought' ? { text, thought: true, stopped: false } : this.#answer(text, last);
  }

  /** No token with text comes any more: everything held back comes out. */
  end(): OutputPiece {
    const text = this.#text.flush();
    return this.#splitter.thinking ? { text, thought: true, stopped: false } : this.#answer(text, true);
  }

  #answer(text: string, last: boolean): OutputPiece {
    const result = this.#stops.push(text);
    const rest = last && !result.stopped ? this.#stops.flush() : '';
    return { text: result.text + rest, thought: false, stopped: result.stopped };
  }

  /** At a border the text before it is done: bytes that wait for more belong to it as they are. */
  #border(id: number, wasThinking: boolean): OutputPiece {
    const text = this.#text.flush() + (wasThinking ? '' : this.#stops.flush());
    this.#text = new TokenText(this.options.detokenize, [id]);
    return { text, thought: wasThinking || text === '', stopped: false };
  }

  #isSpace(id: number): boolean {
    return this.options.detokenize([id], []).trim() === '';
  }
}
