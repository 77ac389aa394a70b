/** The demo where lines cannot be drawn over: a line when something has happened, a small bar when the card has changed. */
import type { LedgerState, ServedModel, Stage } from '../../orchestrator/types.js';
import type { Palette } from '../terminal/colour.js';
import { renderBar } from '../terminal/bars.js';
import type { Output } from '../terminal/output.js';
import { formatBytes } from '../terminal/size-format.js';
import { cardStretches, chargedBytes } from '../views/card-view.js';
import { createNames, type Names } from '../views/names.js';
import { renderAnswer, renderOutcome, renderQuestion, type Said } from './answer-text.js';
import type { Turn } from './script.js';
import { renderSummary, type Summary } from './summary.js';
import type { DemoView, Outcome } from './view.js';

export class PlainView implements DemoView {
  readonly #output: Output;
  readonly #palette: Palette;
  #names: Names = createNames([]);
  #models: readonly ServedModel[] = [];
  readonly #active = new Map<number, Said>();
  #bar = '';
  #toldOfSeveral = false;

  constructor(output: Output, palette: Palette) {
    this.#output = output;
    this.#palette = palette;
  }

  measuring(models: readonly string[]): void {
    this.#write([`Loading ${models.length} models once, to learn how much room they need.`]);
  }

  began(state: LedgerState, models: readonly ServedModel[]): void {
    this.#models = models;
    this.#names = createNames(models);
    this.#write(['', `Three models take turns on a simulated card of ${formatBytes(state.cards[0]?.totalBytes ?? null)}; two fit at once.`, '']);
  }

  asked(turn: Turn): void {
    this.#active.set(turn.number, { turn, thought: '', text: '', status: null });
    if (this.#active.size < 2 || this.#toldOfSeveral) return;
    this.#toldOfSeveral = true;
    this.#write(['From here on questions are asked at once and told in the order they end.', '']);
  }

  /** Only an answer's end is told here. */
  stage(_turn: Turn, _stage: Stage): void {
    // A log needs no progress: the outcome says how long each part took.
  }

  token(turn: Turn, text: string, thought: boolean): void {
    const said = this.#active.get(turn.number);
    if (said !== undefined) said[thought ? 'thought' : 'text'] += text;
  }

  /** Whole, because two answers may come at once. */
  ended(turn: Turn, outcome: Outcome): void {
    const said = this.#active.get(turn.number);
    this.#active.delete(turn.number);
    if (said === undefined) return;
    const { columns } = this.#output;
    this.#write([
      ...renderQuestion(turn, this.#indexOf(turn.model), columns, this.#palette),
      ...renderAnswer(said, columns, this.#palette),
      renderOutcome(outcome, columns, this.#palette),
      ...(this.#bar === '' ? [] : [`    ${this.#bar}`]),
      '',
    ]);
  }

  ledger(state: LedgerState): void {
    const [card] = state.cards;
    if (card === undefined) return;
    const figures = `${formatBytes(chargedBytes(card))} of ${formatBytes(card.totalBytes)} charged`;
    const bar = renderBar(cardStretches(card, state.leases, this.#names), this.#output.columns - figures.length - 6, this.#palette);
    this.#bar = `${bar}  ${this.#palette.dim(figures)}`;
  }

  finished(summary: Summary): void {
    this.#write(renderSummary(summary, this.#output.columns, this.#palette));
  }

  close(): void {
    // Every line has been written.
  }

  #indexOf(model: string): number {
    return this.#names.index(this.#models.find(({ name }) => name === model)?.key ?? model);
  }

  #write(lines: readonly string[]): void {
    this.#output.write(`${lines.map((line) => line.trimEnd()).join('\n')}\n`);
  }
}
