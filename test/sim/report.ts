/** Failures in a form from which they can be run again: seed, commit, what broke, and what happened last. */
import { spawnSync } from 'node:child_process';
import type { CoreEvent } from '../../broker/core/events.js';
import type { Effect } from '../../broker/core/effects.js';
import type { Step } from '../../src/scenarios/world/context.js';
import type { RunResult } from './run.js';

export interface Summary {
  seeds: number;
  steps: number;
  settlingSteps: number;
  violations: number;
  stuck: number;
  grants: number;
  evictions: number;
  denied: number;
  placed: number;
  spawned: number;
  terminated: number;
  thrashes: number;
  ooms: number;
  crashes: number;
  loads: number;
  restarts: number;
  returned: number;
  calls: number;
  answered: number;
  virtualSeconds: number;
  worstWaitToBound: number;
}

export function emptySummary(): Summary {
  return {
    seeds: 0, steps: 0, settlingSteps: 0, violations: 0, stuck: 0, grants: 0, evictions: 0, denied: 0, placed: 0, spawned: 0, terminated: 0, thrashes: 0, ooms: 0, crashes: 0,
    loads: 0, restarts: 0, returned: 0, calls: 0, answered: 0, virtualSeconds: 0, worstWaitToBound: 0,
  };
}

/** What each figure says, for who sees it for the first time; in this order. */
const meanings: Readonly<Record<keyof Summary, string>> = {
  seeds: 'worlds were played, each from its seed',
  violations: 'of them broke a rule: must be 0',
  stuck: 'of them had something that never came to its end: must be 0',
  steps: 'events were judged while faults struck',
  settlingSteps: 'more after the faults stopped, until everything had settled',
  virtualSeconds: 'seconds passed on the clocks of these worlds',
  calls: 'calls of models were made',
  answered: 'of them were answered; the others met a fault or a deadline, or left',
  grants: 'times a model was let onto a card',
  loads: 'times one was loaded',
  evictions: 'times one was put away for another',
  denied: 'requests were refused, each with a reason',
  placed: 'times a call was given to a worker',
  spawned: 'workers were started',
  terminated: 'workers were ended by the broker',
  crashes: 'processes died or were killed',
  restarts: 'times the broker was killed, and the next began with what was left',
  returned: 'processes came back to that one with all that they held',
  ooms: 'allocations failed on a card: of liars and strangers, of no grant',
  thrashes: 'cards were found loading the same models again and again',
  worstWaitToBound: 'of the longest wait promised was the worst one: must be at most 1',
};

/** The summary in words: a verdict, then each figure with what it counts. */
export function summaryText(summary: Summary, seconds: number): readonly string[] {
  const bad = summary.violations + summary.stuck;
  const verdict = bad === 0 ? 'Nothing was broken, and nothing was stuck.' : `${String(bad)} of ${String(summary.seeds)} worlds went wrong; their seeds are on standard error.`;
  const lines = (Object.keys(meanings) as (keyof Summary)[]).map((name) => `${String(summary[name]).padStart(9)}  ${meanings[name]}`);
  return [verdict, '', ...lines, '', `It took ${seconds.toFixed(1)} s. --json gives each figure by its name; --help says what is played.`];
}

export function addResult(summary: Summary, result: RunResult): void {
  const { counters } = result;
  summary.seeds++;
  summary.steps += result.steps;
  summary.settlingSteps += result.settlingSteps;
  summary.violations += result.violations.length > 0 ? 1 : 0;
  summary.stuck += result.stuck === null ? 0 : 1;
  for (const name of ['grants', 'evictions', 'denied', 'placed', 'spawned', 'terminated', 'thrashes', 'ooms', 'crashes', 'loads', 'restarts', 'returned', 'calls', 'answered'] as const) summary[name] += counters[name];
  summary.virtualSeconds += result.virtualSeconds;
  summary.worstWaitToBound = Math.max(summary.worstWaitToBound, Number(result.worstWaitToBound.toFixed(3)));
}

export function failureText(result: RunResult): string {
  const lines = [`SEED=${result.seed} COMMIT=${commit()}`];
  for (const violation of result.violations.slice(0, 3)) lines.push(`broken: ${violation.rule}: ${violation.text}`);
  if (result.stuck !== null) lines.push(`stuck: ${result.stuck}`);
  lines.push('the last steps:', ...result.lastSteps.slice(-25).map(stepText), `again: npm run -s sim -- --seeds 1 --from ${result.seed} --trace`);
  return lines.join('\n');
}

/** The seed and the first rule that it broke. */
export function failureLine({ seed, violations, stuck }: RunResult): string {
  const [first] = violations;
  return `SEED=${seed} ${first === undefined ? `stuck: ${stuck ?? ''}` : `broken: ${first.rule}: ${first.text.split('\n', 1)[0] ?? ''}`}`;
}

export function stepText(step: Step): string {
  const { event, effects } = step;
  const lines = [`  ${(event.atUs / 1_000_000).toFixed(6)} ${eventText(event)}`];
  for (const effect of effects) lines.push(`      -> ${effectText(effect)}`);
  return lines.join('\n');
}

function eventText(event: CoreEvent): string {
  const { atUs: _atUs, type, ...rest } = event;
  return `${type} ${shortJson(rest)}`;
}

function effectText(effect: Effect): string {
  if (effect.type === 'explain') {
    const { verdict, text, request, generation, victims } = effect.record;
    return `explain ${verdict} ${generation}#${request ?? '-'} "${text}"${victims.length > 0 ? ` ${shortJson(victims)}` : ''}`;
  }
  const { type, ...rest } = effect;
  return `${type} ${shortJson(rest)}`;
}

function shortJson(value: unknown): string {
  return JSON.stringify(value).replaceAll('"', '');
}

function commit(): string {
  const { status, stdout } = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: import.meta.dirname, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'unknown';
}
