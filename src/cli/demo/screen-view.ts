/** The demo on a terminal: answers scroll up as they end; below them the card is drawn again whenever it changes. */
import type { LedgerState, ServedModel, Stage } from '../../orchestrator/types.js';
import { describeStage } from '../commands/stage-text.js';
import type { Palette } from '../terminal/colour.js';
import { LiveArea } from '../terminal/live-area.js';
import type { Output } from '../terminal/output.js';
import { formatBytes, formatCount } from '../terminal/size-format.js';
import { renderCard } from '../views/card-view.js';
import { createNames, type Names } from '../views/names.js';
import { renderAnswer, renderOutcome, renderQuestion, type Said } from './answer-text.js';
import { renderSummary, type Summary } from './summary.js';
import type { Turn } from './script.js';
import type { DemoView, Outcome } from './view.js';

/** Wider lines are hard to read. */
const columnsMax = 120;
/** Least time between two pictures. */
const frameMs = 40;

export class ScreenView implements DemoView {
  readonly #output: Output;
  readonly #palette: Palette;
  #names: Names = createNames([]);
  #models: readonly ServedModel[] = [];
  readonly #area: LiveArea;
  readonly #active = new Map<number, Said>();
  #state: LedgerState | null = null;
  #turns = 0;
  #answered = 0;
  #right = 0;
  #timer: NodeJS.Timeout | null = null;

  /** `besides`: the other streams to the same terminal, whose lines are to go above the picture. */
  constructor(output: Output, besides: readonly Output[], palette: Palette) {
    this.#output = output;
    this.#palette = palette;
    this.#area = new LiveArea(output, besides);
  }

  get #columns(): number {
    return Math.min(this.#output.columns, columnsMax);
  }

  measuring(models: readonly string[]): void {
    this.#area.draw([this.#palette.dim(`Loading ${models.length} models once, to learn how much room they need…`)]);
  }

  began(state: LedgerState, models: readonly ServedModel[], turns: number): void {
    this.#models = models;
    this.#names = createNames(models);
    this.#turns = turns;
    this.#state = state;
    const size = formatBytes(state.cards[0]?.totalBytes ?? null);
    this.#area.draw(this.#panel(), [
      `${this.#palette.bold('Three models take turns')} ${this.#palette.dim(`on a simulated card of ${size}; two fit at once.`)}`, '',
    ]);
  }

  asked(turn: Turn): void {
    this.#active.set(turn.number, { turn, thought: '', text: '', status: 'asking' });
    this.#drawSoon();
  }

  stage(turn: Turn, stage: Stage): void {
    const said = this.#active.get(turn.number);
    if (said === undefined) return;
    const percent = stage.progress === null ? '' : ` ${Math.floor(stage.progress * 100)} %`;
    said.status = stage.stage === 'generating' ? null : describeStage(turn.model, stage, this.#names) + percent;
    this.#drawSoon();
  }

  token(turn: Turn, text: string, thought: boolean): void {
    const said = this.#active.get(turn.number);
    if (said === undefined) return;
    said[thought ? 'thought' : 'text'] += text;
    said.status = null;
    this.#drawSoon();
  }

  ended(turn: Turn, outcome: Outcome): void {
    const said = this.#active.get(turn.number);
    this.#active.delete(turn.number);
    if (outcome.result !== null) this.#answered++;
    if (outcome.right) this.#right++;
    const lines = said === undefined ? [] : [...this.#block({ ...said, status: null }), renderOutcome(outcome, this.#columns, this.#palette), ''];
    this.#draw(lines);
  }

  ledger(state: LedgerState): void {
    this.#state = state;
    this.#drawSoon();
  }

  finished(summary: Summary): void {
    this.#stopTimer();
    const card = this.#state === null ? [] : this.#card(this.#state);
    this.#area.draw(renderSummary(summary, this.#columns, this.#palette), [...card, '']);
  }

  close(): void {
    this.#stopTimer();
    this.#area.end();
  }

  #indexOf(model: string): number {
    return this.#names.index(this.#models.find(({ name }) => name === model)?.key ?? model);
  }

  #block(said: Said): string[] {
    return [
      ...renderQuestion(said.turn, this.#indexOf(said.turn.model), this.#columns, this.#palette),
      ...renderAnswer(said, this.#columns, this.#palette),
    ];
  }

  #card(state: LedgerState): string[] {
    return state.cards.flatMap((card) => renderCard(card, state.leases, this.#names, this.#columns, this.#palette));
  }

  #panel(): string[] {
    if (this.#state === null) return [];
    const { counters } = this.#state;
    const facts = [
      `${this.#answered} of ${this.#turns} answered`, `${this.#right} right`, formatCount(counters['grants'] ?? 0, 'grant'),
      formatCount(counters['evictions'] ?? 0, 'eviction'), `${counters['denials'] ?? 0} denied`,
    ];
    return [this.#palette.dim('─'.repeat(this.#columns)), ...this.#card(this.#state), this.#palette.dim(` ${facts.join(' · ')}`)];
  }

  #draw(finished: readonly string[] = []): void {
    this.#stopTimer();
    const active = [...this.#active.values()].flatMap((said) => [...this.#block(said), '']);
    this.#area.draw([...active, ...this.#panel()], finished);
  }

  /** Tokens come faster than eyes: several changes make one picture. */
  #drawSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#draw();
    }, frameMs);
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
