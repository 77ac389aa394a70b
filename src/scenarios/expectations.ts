/** What a scenario expects of its figures, and what came of it. */
import { suggest } from '../../protocol/index.js';
import type { Figures } from './recorder.js';
import type { Bound, Scenario } from './scenario.js';

export interface Missed {
  readonly figure: string;
  /** Null: the run had no such figure. */
  readonly value: number | null;
  readonly wanted: string;
}

/** These hold in every scenario, whatever its file says. */
const always: Scenario['expect'] = { unfinished: { is: 0 } };

/** Every expectation that does not hold, in the order of the file. */
export function missedExpectations(expect: Scenario['expect'], figures: Figures): readonly Missed[] {
  return Object.entries({ ...always, ...expect }).flatMap(([figure, bound]): Missed[] => {
    const { least, most, is } = bound;
    const value = valueOf(figures, figure);
    const wanted = boundText(bound);
    if (value === null) {
      const near = suggest(figure, Object.keys(figures));
      return [{ figure, value, wanted: `${wanted}; there is no such figure${near === null ? '' : `, did you mean ${near}?`}` }];
    }
    const holds = (is === undefined || value === is) && (least === undefined || value >= least) && (most === undefined || value <= most);
    return holds ? [] : [{ figure, value, wanted }];
  });
}

/** `at least 0.8 and at most 1` */
export function boundText({ least, most, is }: Bound): string {
  return [...(is === undefined ? [] : [`exactly ${is}`]), ...(least === undefined ? [] : [`at least ${least}`]), ...(most === undefined ? [] : [`at most ${most}`])].join(' and ');
}

/** What is counted by reason and never happened is 0. */
export function valueOf(figures: Figures, figure: string): number | null {
  return figures[figure] ?? (/^(denied|failed|struck)\./.test(figure) ? 0 : null);
}
