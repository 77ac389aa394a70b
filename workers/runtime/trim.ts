/** Giving back of the machine's memory what a resident model, and its process, can do without. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { LeaseholdError } from '../../protocol/index.js';
import type { Control } from './control.js';
import type { EngineWatch } from './engine-watch.js';
import type { Engine } from './engine.js';
import type { HeldModel } from './held-model.js';
import type { WorkerLog } from './log.js';

export type TrimAnswer = Control<'done' | 'busy' | 'unsupported' | 'failed'>;

export interface TrimOf {
  readonly key: string;
  readonly engine: Engine;
  readonly held: HeldModel;
  readonly watch: EngineWatch;
  /** It is on its way to or from somewhere: its copy is in use. */
  readonly isMoving: boolean;
  /** The place, among its cards, of the one whose lease is asked of. */
  readonly card: number;
  readonly references: number;
  readonly log: WorkerLog;
}

/**
 * 1. The copy, where that is asked for: it goes whatever calls run.
 * 2. With a figure, first what no lease counts, garbage and caches; the copy after that, where it was not enough.
 */
export async function trimHost({ id, bytes }: Control<'trim_host'>, { key, engine, held, watch, card, isMoving, references, log }: TrimOf): Promise<TrimAnswer> {
  if (isMoving) return { type: 'busy', id, inFlight: references };
  const beforeBytes = held.hostBytesOn(card);
  const beforeRss = process.memoryUsage.rss();
  try {
    if (bytes !== null) await watch.bounded(`Dropping caches beside ${key}`, dropCaches(engine));
    const freedRss = Math.max(0, beforeRss - process.memoryUsage.rss());
    const drop = bytes === null || freedRss < bytes ? held.dropCopy : null;
    if (bytes === null && drop === null && beforeBytes > 0) return { type: 'unsupported', id, message: `the copy of ${key} cannot be given back alone` };
    if (drop !== null) await watch.bounded(`Dropping the copy of ${key}`, drop());
    const freedBytes = beforeBytes - held.hostBytesOn(card) + (bytes === null ? 0 : freedRss);
    return { type: 'done', id, target: 'device', freedBytes, residentBytes: held.residentBytesOn(card), hostBytes: held.hostBytesOn(card) };
  } catch (error) {
    const typed = LeaseholdError.from(error, 'move_failed');
    log.line('warn', 'memory could not be given back', { model: key, reason: typed.message });
    return { type: 'failed', id, code: 'move_failed', message: typed.message, residentBytes: held.residentBytesOn(card) };
  }
}

async function dropCaches(engine: Engine): Promise<void> {
  await engine.releaseMemory?.();
  collectGarbage();
}

let collect: (() => void) | null = null;

/** The engine's own collector has no other way to be called. */
function collectGarbage(): void {
  if (collect === null) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
}
