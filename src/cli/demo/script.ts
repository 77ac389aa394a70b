/** The conversation of the demo: who is asked what, in which order, and when several ask at once. */
import { tinyModels, type TinyModelName } from '../../orchestrator/shipped-models.js';

export interface Turn {
  /** From 1. */
  readonly number: number;
  readonly model: TinyModelName;
  readonly question: string;
}

/** Turns that are asked at the same moment. */
export type Round = readonly Turn[];

const names = ['tiny-tales', 'tiny-sums', 'tiny-facts'] as const;

/**
 * In turn, so that whoever is asked is most often the one that was put away: with room for two of three, no policy can
 * do with fewer than 7 evictions in 15 such turns. At last all three at once, of which one must wait.
 */
const order: readonly (readonly TinyModelName[])[] = [...Array.from({ length: 15 }, (_, turn) => [names[turn % names.length] ?? names[0]]), names];

/** The example questions of each model in their order, begun again when they are used up. */
export function conversation(): readonly Round[] {
  const asked = new Map<TinyModelName, number>();
  let number = 0;
  return order.map((models) => models.map((model) => {
    const index = asked.get(model) ?? 0;
    asked.set(model, index + 1);
    const { exampleQuestions } = tinyModels[model];
    const question = exampleQuestions[index % exampleQuestions.length]?.question ?? '';
    return { number: ++number, model, question };
  }));
}
