/** `leasehold stress`: plays a scenario and says what came of it. */
import { resolve } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { missedExpectations } from '../../scenarios/expectations.js';
import { playOnClock, type Played } from '../../scenarios/on-clock.js';
import { readScenario, shippedScenarios } from '../../scenarios/read.js';
import type { Scenario } from '../../scenarios/scenario.js';
import { labelColumns, textReport } from '../../scenarios/text-report.js';
import { timelineSvg } from '../../scenarios/timeline-svg.js';
import { wholeNumber } from '../arguments.js';
import { stoppable, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { writeAbove } from '../terminal/standing.js';
import { pad } from '../terminal/width.js';
import { requireWritable, writeOutput } from './writable.js';

interface StressOptions {
  readonly on?: 'clock' | 'processes' | 'engines';
  readonly speed?: string;
  readonly seed?: string;
  readonly svg?: string;
  readonly list?: boolean;
}

const speedMax = 1_000;
/** Room for the longest name of a scenario that ships. */
const nameColumns = 18;

export async function stress(context: CommandContext, args: readonly unknown[], options: StressOptions): Promise<number> {
  const [given] = args as [string | undefined];
  if (options.list === true) return list(context);
  if (given === undefined) throw new LeaseholdError('input_invalid', { field: 'scenario', reason: `a file, or the name of one that ships: ${shippedScenarios().join(', ')}` });
  const speed = wholeNumber(options.speed, '--speed', 1, speedMax) ?? 1;
  const seed = wholeNumber(options.seed, '--seed', 0, 2 ** 32 - 1) ?? null;
  const on = options.on ?? 'clock';
  if (on === 'clock' && options.speed !== undefined) throw new LeaseholdError('input_invalid', { field: '--speed', reason: 'the virtual clock needs none; it is for --on processes' });
  const read = await readScenario(given);
  const scenario = seed === null ? read : { ...read, seed };
  const svgPath = options.svg === undefined ? null : resolve(context.io.cwd, options.svg);
  const letGo = svgPath === null ? () => undefined : await requireWritable(svgPath, '--svg');
  return stoppable(context, async (signal) => {
    const { recorder, refusals, tookMs } = await play(context, scenario, on, speed, signal).catch((error: unknown) => {
      if (signal.aborted && !context.json) writeAbove(context.io.stderr, `Stopped: ${scenario.name} was not played to its end, and nothing is said of it.`);
      throw error;
    });
    const figures = recorder.figures(refusals, tookMs);
    const missed = missedExpectations(scenario.expect, figures);
    if (context.json) writeJson(context.io, { scenario: scenario.name, seed: scenario.seed, on, figures, expected: scenario.expect, missed });
    else for (const line of textReport(scenario, figures, missed, { on, speed })) writeLine(context.io, line, line.startsWith('  ') ? labelColumns : 2);
    // After the report: a disk that has filled up meanwhile costs the picture alone.
    if (svgPath !== null) await writeOutput(svgPath, '--svg', timelineSvg(`${scenario.name} (seed ${scenario.seed})`, recorder.cards(), recorder.struckAt(), tookMs));
    return missed.length === 0 ? exitCodes.done : exitCodes.failed;
  }).finally(letGo);
}

async function play({ io, json, errorPalette }: CommandContext, scenario: Scenario, on: 'clock' | 'processes' | 'engines', speed: number, signal: AbortSignal): Promise<Played> {
  if (on === 'clock') return playOnClock(scenario, signal);
  const { playOnProcesses } = await import('../../scenarios/on-processes.js');
  const status = json ? noStatusLine : createStatusLine(io.stderr, errorPalette);
  const seconds = Math.ceil(scenario.durationMs / speed / 1_000);
  const began = performance.now();
  const show = (): void => { status.show(`${scenario.name}: callers come for ${seconds} s`, Math.min(1, (performance.now() - began) / 1_000 / Math.max(1, seconds))); };
  show();
  const timer = setInterval(show, 500);
  try {
    return await playOnProcesses(scenario, { speed, engines: on === 'engines', signal });
  } finally {
    clearInterval(timer);
    status.clear();
  }
}

async function list({ io, json }: CommandContext): Promise<number> {
  for (const name of shippedScenarios()) {
    const { about } = await readScenario(name);
    if (json) writeJson(io, { scenario: name, about });
    else writeLine(io, `${pad(name, nameColumns)} ${about}`, nameColumns + 1);
  }
  return exitCodes.done;
}
