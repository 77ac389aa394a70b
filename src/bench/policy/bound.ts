/**
 * The least reload time that any schedule can have that serves the calls in
 * the order of their arrival and knows them all: a linear program. Between two
 * calls on a model it may stay (or a fraction of it), which saves its load; at
 * every call those that stay fit beside the model that is called. Fractions
 * are allowed, so it is a bound from below and may be out of reach.
 */
import loadHighs from 'highs';
import type { Trace } from './traces.js';

interface Stay {
  readonly model: number;
  readonly from: number;
  readonly to: number;
}

export async function leastReloadMs(trace: Trace): Promise<number> {
  const { calls, models } = trace;
  const stays = staysOf(trace);
  const loadAllMs = calls.reduce((sum, { model }) => sum + (models[model]?.loadMs ?? 0), 0);
  if (stays.length === 0) return loadAllMs;
  // Its types are written for CommonJS; what an import gives is the function itself.
  const highs = await (loadHighs as unknown as typeof loadHighs.default)();
  const { Status, ObjectiveValue } = highs.solve(programOf(trace, stays));
  if (Status !== 'Optimal') throw new Error(`the bound was not found: ${Status}`);
  return loadAllMs - ObjectiveValue;
}

function staysOf({ calls }: Trace): Stay[] {
  const lastCall = new Map<number, number>();
  const stays: Stay[] = [];
  for (const [to, { model }] of calls.entries()) {
    const from = lastCall.get(model);
    if (from !== undefined) stays.push({ model, from, to });
    lastCall.set(model, to);
  }
  return stays;
}

/** In the LP file format; bytes in MiB, so that the numbers stay small. */
function programOf(trace: Trace, stays: readonly Stay[]): string {
  const { calls, models, cardBytes } = trace;
  const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(3);
  const saved = stays.map(({ model }, index) => `${models[model]?.loadMs ?? 0} s${index}`);
  const begins = new Map(stays.map(({ from }, index) => [from, index]));
  const ends = new Map(stays.map(({ to }, index) => [to, index]));
  const staying = new Map<number, number>();
  const rows: string[] = [];
  for (const [call, { model }] of calls.entries()) {
    const ending = ends.get(call);
    if (ending !== undefined) staying.delete(ending);
    const room = cardBytes - (models[model]?.bytes ?? 0);
    if (staying.size > 0) rows.push(` c${call}: ${[...staying].map(([index, bytes]) => `${mib(bytes)} s${index}`).join(' + ')} <= ${mib(room)}`);
    const beginning = begins.get(call);
    if (beginning !== undefined) staying.set(beginning, models[model]?.bytes ?? 0);
  }
  const bounds = stays.map((_, index) => ` 0 <= s${index} <= 1`);
  return `Maximize\n saved: ${saved.join(' + ')}\nSubject To\n${rows.join('\n')}\nBounds\n${bounds.join('\n')}\nEnd\n`;
}
