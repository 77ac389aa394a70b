/**
 * Where chat templates are rendered (B172). The language gives a template no way out: it sees the messages and a few
 * functions, and of an object only what its interpreter lists. What it does not bound is work, so a template has steps
 * and sizes, and runs in a thread with a heap and a deadline; what breaks those ends the thread and not this process.
 */
import { LeaseholdError, durationText } from '../../protocol/index.js';
import { ThreadEnded, ThreadPool } from '../../src/models/threads/thread-pool.js';
import type { TemplateOutcome, TemplateTask } from './template-thread.js';

/** A usual one takes a millisecond; the rest is for a machine that has other things to do. */
const renderMs = 5_000;
/** Above the longest text that there can be, of half a gibibyte of characters. */
const heapBytesMax = 2 * 1024 ** 3;
/** Kept from call to call: a start costs more than a rendering. */
const idleMs = 600_000;

let threads: ThreadPool<TemplateTask, TemplateOutcome> | null = null;

/** Rejects with `input_invalid` for a template that is none or that goes beyond its bounds; with a plain error for one that refuses the variables. */
export async function renderTemplate(source: string, variables: Readonly<Record<string, unknown>>): Promise<string> {
  threads ??= new ThreadPool({ script: new URL('./template-thread.js', import.meta.url), threadsMax: 1, heapBytesMax, idleMs });
  const outcome = await threads.run({ source, variables }, { limitMs: renderMs }).catch((error: unknown) => { throw error instanceof ThreadEnded ? invalid(endings[error.how], error) : error; });
  if ('text' in outcome) return outcome.text;
  if (outcome.what === 'refused') throw new Error(outcome.reason);
  throw invalid(outcome.what === 'unreadable' ? `cannot be read: ${outcome.reason}` : `is not used: ${outcome.reason}`);
}

const endings: Readonly<Record<ThreadEnded['how'], string>> = {
  time: `is not used: it took longer than ${durationText(renderMs)}`,
  memory: `is not used: it took more than ${String(heapBytesMax)} bytes of memory`,
  itself: 'is not used: its thread ended',
};

function invalid(how: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError('input_invalid', { field: 'messages', reason: `the model's chat template ${how}` }, cause === undefined ? {} : { cause });
}
