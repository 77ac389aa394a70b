/** What the rest needs to know of a loaded model's tokens: prompts in, text out, and which ids mean something. */
import type { LlamaModel, Token } from 'node-llama-cpp';
import { LeaseholdError } from '../../protocol/index.js';
import type { GenerateCall } from '../runtime/engine.js';
import { chatmlTemplate, renderMessages, type TemplateContext } from './chat-template.js';
import { cutLongRuns } from './long-runs.js';
import { renderTemplate } from './render-template.js';
import { endsInThought, type ThoughtTags } from './thought.js';

const controlType = 3;
/** Every character of a text is in one of its tokens; others drop spaces, accents or what they do not know. */
const losslessTokenizers: ReadonlySet<string> = new Set(['gpt2', 'llama']);
/** The pairs of tags that models in use mark their thought with, as single tokens. */
const tagTexts = [['<think>', '</think>'], ['[THINK]', '[/THINK]'], ['<seed:think>', '</seed:think>'], ['<thinking>', '</thinking>']] as const;

/** What a file may say of its tokenizer; the bindings' own type promises more than files keep. */
interface TokenizerMetadata {
  readonly ggml?: { readonly model?: string; readonly remove_extra_whitespaces?: boolean; readonly tokens?: readonly string[]; readonly token_type?: readonly number[] };
  readonly chat_template?: unknown;
}

export class Vocabulary {
  readonly thoughtTags: ThoughtTags | null;
  readonly #tokens: readonly string[];
  readonly #losesText: boolean;
  readonly #isByteLevel: boolean;
  readonly #controlTexts: readonly string[];
  readonly #templateText: string | null;
  #template: TemplateContext | null = null;

  /** `templateText` replaces the model's own chat template. */
  constructor(private readonly model: LlamaModel, templateText: string | null) {
    const { ggml, chat_template: ownTemplate } = model.fileInfo.metadata.tokenizer as TokenizerMetadata | undefined ?? {};
    const types = ggml?.token_type ?? [];
    this.#tokens = ggml?.tokens ?? [];
    this.#isByteLevel = ggml?.model === 'gpt2';
    this.#losesText = !losslessTokenizers.has(ggml?.model ?? '') || ggml?.remove_extra_whitespaces === true;
    this.#controlTexts = this.#tokens.filter((_, id) => Number(types[id]) === controlType);
    this.#templateText = templateText ?? (typeof ownTemplate === 'string' ? ownTemplate : null) ?? (this.#has('<|im_start|>') && this.#has('<|im_end|>') ? chatmlTemplate : null);
    this.thoughtTags = this.#findTags();
  }

  /** The texts of what a call gives, to be made tokens one by one. Rejects with `input_invalid`. */
  async promptTexts(input: Pick<GenerateCall, 'messages' | 'prompt'>, thinking: boolean | undefined): Promise<readonly string[]> {
    if ((input.messages === null) === (input.prompt === null)) throw new LeaseholdError('input_invalid', { field: 'messages', reason: 'exactly one of messages and prompt must be given' });
    return input.messages === null ? [input.prompt ?? ''] : renderMessages(this.#templateContext(), input.messages, thinking);
  }

  /** The tokens of such texts, beginning-of-text included where the model wants one. Throws `input_invalid` where there are none. */
  promptTokens(pieces: readonly string[]): Token[] {
    const tokens: Token[] = [];
    for (const piece of pieces) {
      const [first = '', ...more] = this.#cut(piece);
      this.#append(tokens, this.model.tokenize(first, true, ...(tokens.length === 0 ? [] : ['trimLeadingSpace' as const])));
      for (const each of more) this.#append(tokens, this.model.tokenize(each, true));
    }
    const { bos, shouldPrependBosToken } = this.model.tokens;
    if (shouldPrependBosToken && bos !== null && tokens[0] !== bos) tokens.unshift(bos);
    if (tokens.length === 0) throw new LeaseholdError('input_invalid', { field: 'prompt', reason: 'it has no tokens' });
    return tokens;
  }

  /** The tokens of a text in which nothing is a control token, without what a model wants at its ends. */
  textTokens(text: string): Token[] {
    const tokens: Token[] = [];
    for (const piece of this.#cut(text)) this.#append(tokens, this.model.tokenize(piece));
    return tokens;
  }

  readonly detokenize = (ids: readonly number[], before: readonly number[]): string => this.model.detokenize(ids as Token[], false, before as Token[]);

  endsInThought(prompt: readonly Token[]): boolean {
    return endsInThought(prompt, this.thoughtTags, (id) => this.#isMarked(id as Token));
  }

  isEnd(id: Token): boolean {
    return this.model.isEogToken(id);
  }

  /** Fewest tokens that `text` can have: it is too long when even they are too many, and need not be looked at. */
  fewestTokens(text: string): number {
    if (this.#losesText) return 0;
    this.#longestCharacters ??= this.#tokens.reduce((longest, token) => Math.max(longest, token.length), 1);
    return Math.floor(text.length / this.#longestCharacters);
  }
  #longestCharacters: number | null = null;

  #templateContext(): TemplateContext {
    if (this.#template !== null) return this.#template;
    if (this.#templateText === null) {
      throw new LeaseholdError('input_invalid', { field: 'messages', reason: 'the model file has no chat template; send a prompt instead, or set options.chatTemplate' });
    }
    const { bosString, eosString } = this.model.tokens;
    const source = this.#templateText;
    this.#template = { render: (variables) => renderTemplate(source, variables), controlTexts: this.#controlTexts, bosText: bosString ?? '', eosText: eosString ?? '' };
    return this.#template;
  }

  #findTags(): ThoughtTags | null {
    for (const [open, close] of tagTexts) {
      const [openId, closeId] = [this.#tokens.indexOf(open), this.#tokens.indexOf(close)];
      if (openId >= 0 && closeId >= 0) return { openId, closeId };
    }
    return null;
  }

  #cut(text: string): readonly string[] {
    return this.#isByteLevel ? cutLongRuns(text) : [text];
  }

  /** One by one: a call takes only so many arguments. */
  #append(tokens: Token[], more: readonly Token[]): void {
    for (const id of more) tokens.push(id);
  }

  #has(text: string): boolean {
    return this.#tokens.includes(text);
  }

  /** A token that is not plain text: the border of a message, or one that a template adds. */
  #isMarked(id: Token): boolean {
    const attributes = this.model.getTokenAttributes(id);
    return attributes.control || attributes.userDefined;
  }
}
