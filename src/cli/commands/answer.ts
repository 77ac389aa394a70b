/** How an answer is written as it comes: for people, or for programs. */
import type { GenerationResult, Token } from '../../orchestrator/types.js';
import type { CommandContext } from '../context.js';
import { writeJson } from '../report.js';
import { leave, stand, type Standing } from '../terminal/standing.js';
import type { StatusLine } from '../terminal/progress.js';
import { formatCount, formatMs } from '../terminal/size-format.js';
import { withoutControls } from '../terminal/width.js';

export interface AnswerWriter {
  token(token: Token): void;
  /** Called once, also when the answer ended early. */
  close(): void;
}

export class JsonAnswer implements AnswerWriter {
  readonly #context: CommandContext;

  constructor(context: CommandContext) {
    this.#context = context;
  }

  token({ text, ids, thought }: Token): void {
    writeJson(this.#context.io, { event: 'token', text, ids, thought });
  }

  close(): void {
    // Each line was whole when it was written.
  }
}

/**
 * The answer goes to stdout and nothing else does; thought, when asked for, goes to stderr. What others say on stderr
 * meanwhile begins on a line of its own, and the answer goes on below it.
 */
export class TextAnswer implements AnswerWriter, Standing {
  readonly #context: CommandContext;
  readonly #status: StatusLine;
  readonly #showThought: boolean;
  #begun = false;
  #thinking = false;
  #thoughtEndsLine = true;
  #endsLine = true;
  /** Something was said below what has been written. */
  #interrupted = false;

  constructor(context: CommandContext, status: StatusLine, showThought: boolean) {
    this.#context = context;
    this.#status = status;
    this.#showThought = showThought;
  }

  token({ text, thought }: Token): void {
    const { io, errorPalette } = this.#context;
    if (text === '') return;
    if (thought) {
      if (!this.#showThought) {
        this.#status.show('thinking', null);
        return;
      }
      this.#status.clear();
      const piece = this.#thinking ? text : text.trimStart();
      if (piece === '') return;
      this.#thinking = true;
      this.#thoughtEndsLine = piece.endsWith('\n');
      this.#stand();
      io.stderr.write(errorPalette.dim(this.#safe(piece, io.stderr.isTerminal)));
      return;
    }
    this.#status.clear();
    if (this.#thinking) io.stderr.write(this.#thoughtEndsLine ? '\n' : '\n\n');
    this.#thinking = false;
    // What a template leaves before the answer's first word is no part of it.
    const shown = this.#begun ? text : text.trimStart();
    if (shown === '') return;
    this.#begun = true;
    this.#endsLine = shown.endsWith('\n');
    this.#stand();
    io.stdout.write(this.#safe(shown, io.stdout.isTerminal));
  }

  /** Ends the last line, so that the shell's prompt begins on one of its own. */
  close(): void {
    leave(this, [this.#context.io.stderr]);
    if (!this.#endsLine) this.#context.io.stdout.write('\n');
    if (this.#thinking && !this.#thoughtEndsLine) this.#context.io.stderr.write('\n');
  }

  writeAbove(lines: string): void {
    const { io } = this.#context;
    const midLine = this.#thinking ? !this.#thoughtEndsLine : io.outputsMeet && !this.#endsLine;
    io.stderr.write(midLine && !this.#interrupted ? `\n${lines}` : lines);
    this.#interrupted = true;
  }

  #stand(): void {
    this.#interrupted = false;
    stand(this, [this.#context.io.stderr]);
  }

  /** A model's text must not command the terminal; in a file it stays as it is. */
  #safe(text: string, isTerminal: boolean): string {
    return isTerminal ? withoutControls(text) : text;
  }
}

/** Tokens and times in three lines, for --verbose. */
export function summary({ reason, usage, timings, explain }: GenerationResult): string {
  const perSecond = timings.generateMs > 0 ? `, ${((usage.completionTokens * 1000) / timings.generateMs).toFixed(1)} tokens a second` : '';
  const thought = usage.thoughtTokens > 0 ? ` (${usage.thoughtTokens} of them thought)` : '';
  const cached = usage.cachedTokens > 0 ? ` (${usage.cachedTokens} cached)` : '';
  const parts = [
    `${formatCount(usage.promptTokens, 'prompt token')}${cached}, ${formatCount(usage.completionTokens, 'token')}${thought}${perSecond}`,
    `placed in ${formatMs(timings.placingMs)}, queued ${formatMs(timings.queuedMs)}, load ${formatMs(timings.loadMs)}, prefill ${formatMs(timings.prefillMs)}, generate ${formatMs(timings.generateMs)}`,
    `ended by ${reason}${explain === null ? '' : `; leasehold explain ${explain}`}`,
  ];
  return parts.join('\n');
}
