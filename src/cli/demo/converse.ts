/** Asks every question of the conversation and counts what comes of it. */
import { LeaseholdError } from '../../../protocol/index.js';
import { checkAnswer, tinyModelNames } from '../../orchestrator/shipped-models.js';
import type { GenerationResult, Orchestrator } from '../../orchestrator/types.js';
import { watchLedger } from './ledger-watch.js';
import type { Answers } from './result.js';
import type { Round, Turn } from './script.js';
import type { ModelSummary } from './summary.js';
import { HandOffs, median, type AnswerTally } from './tally.js';
import type { DemoView, Outcome } from './view.js';

/** Longest any question may take; the whole demo takes less. */
const deadlineMs = 60_000;

export class Conversation {
  readonly #orchestrator: Orchestrator;
  readonly #view: DemoView;
  readonly #rounds: readonly Round[];
  readonly #handOffs = new HandOffs();
  readonly #tallies = new Map<string, AnswerTally>(tinyModelNames.map((name) => [name, { requests: 0, answered: 0, right: 0, tokens: 0 }]));

  constructor(orchestrator: Orchestrator, view: DemoView, rounds: readonly Round[]) {
    this.#orchestrator = orchestrator;
    this.#view = view;
    this.#rounds = rounds;
  }

  /** Resolves when every question has been answered or has failed; rejects when `signal` aborts or the broker is gone. */
  async hold(signal: AbortSignal): Promise<Answers> {
    const watching = watchLedger(this.#orchestrator, (event) => { this.#handOffs.take(event); }, (state) => { this.#view.ledger(state); });
    await Promise.race([this.#askAll(signal), watching.then(() => { throw new LeaseholdError('broker_lost', { reason: 'it ended during the demo' }); })]);
    const tallies = [...this.#tallies.values()];
    const total = (pick: (tally: AnswerTally) => number) => tallies.reduce((sum, tally) => sum + pick(tally), 0);
    return { requests: total(({ requests }) => requests), answered: total(({ answered }) => answered), right: total(({ right }) => right) };
  }

  byModel(): readonly ModelSummary[] {
    return [...this.#tallies].map(([model, tally]) => {
      const key = this.#orchestrator.models.find(({ name }) => name === model)?.key ?? model;
      const handOffsMs = this.#handOffs.of(key);
      return {
        model, ...tally,
        grants: this.#handOffs.grantsOf(key),
        evictions: this.#handOffs.evictionsOf(key),
        handOffMedianMs: median(handOffsMs),
        handOffLongestMs: handOffsMs.length === 0 ? null : Math.max(...handOffsMs),
      };
    });
  }

  async #askAll(signal: AbortSignal): Promise<void> {
    this.#view.began(await this.#orchestrator.ledger(), this.#orchestrator.models, this.#rounds.flat().length);
    for (const round of this.#rounds) {
      const outcomes = await Promise.all(round.map((turn) => this.#ask(turn, signal)));
      signal.throwIfAborted();
      // A failure of one question is counted; the conversation goes on.
      for (const [index, outcome] of outcomes.entries()) this.#count(round[index]?.model ?? '', outcome);
    }
  }

  async #ask(turn: Turn, signal: AbortSignal): Promise<Outcome> {
    const beganMs = performance.now();
    const tookMs = () => Math.round(performance.now() - beganMs);
    this.#view.asked(turn);
    const outcome = await this.#answer(turn, signal).then(
      (result): Outcome => ({ result, failure: null, right: checkAnswer(turn.model, turn.question, result.text), tookMs: tookMs() }),
      (error: unknown): Outcome => {
        const { code, message } = LeaseholdError.from(error);
        return { result: null, failure: { code, message }, right: false, tookMs: tookMs() };
      },
    );
    this.#view.ended(turn, outcome);
    return outcome;
  }

  async #answer(turn: Turn, signal: AbortSignal): Promise<GenerationResult> {
    const generation = this.#orchestrator.generate(turn.model, { messages: [{ role: 'user', content: turn.question }] }, {
      signal, deadlineMs, class: 'interactive', onStage: (stage) => { this.#view.stage(turn, stage); },
    });
    for await (const { text, thought } of generation) this.#view.token(turn, text, thought);
    return generation.result();
  }

  #count(model: string, { result, right }: Outcome): void {
    const tally = this.#tallies.get(model);
    if (tally === undefined) return;
    tally.requests++;
    if (result === null) return;
    tally.answered++;
    tally.tokens += result.usage.completionTokens;
    if (right) tally.right++;
  }
}
