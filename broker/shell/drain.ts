/** The calls inside workers when their broker is to end: no new ones are taken, and those that are there have a while to end. */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError } from '../../protocol/index.js';
import type { Log } from './log.js';
import type { Sessions } from './session.js';

const lookMs = 25;

export interface Draining {
  readonly sessions: Sessions;
  readonly workers: Iterable<string>;
  /** Calls that have not ended, as the workers last said. */
  readonly callsInside: () => number;
  readonly drainMs: number;
  /** Aborted: they have no longer. */
  readonly hurry: AbortSignal;
  readonly log: Log;
}

/** Resolves when no call is inside, or the time is over. */
export async function drainCalls({ sessions, workers, callsInside, drainMs, hurry, log }: Draining): Promise<void> {
  const untilMs = performance.now() + drainMs;
  // With its answer a worker says how it is used by now.
  const answered = Promise.all([...workers].map(async (generation) => {
    try {
      await sessions.get(generation)?.channel.request({ type: 'drain' }, { timeoutMs: drainMs });
    } catch (error) {
      log.debug({ generation, reason: LeaseholdError.from(error).message }, 'drain was not answered');
    }
  }));
  await Promise.race([answered, aborted(hurry)]);
  const before = callsInside();
  if (before === 0) return;
  log.info({ calls: before, drainMs }, 'calls inside may end');
  while (callsInside() > 0 && performance.now() < untilMs && !hurry.aborted) await pause(lookMs);
  log.info({ calls: callsInside() }, 'calls that did not end are cut');
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => { resolve(); }, { once: true });
  });
}
