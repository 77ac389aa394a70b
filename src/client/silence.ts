/** A broker that does not answer: how long that is waited for, and what is said of it. */
import { LeaseholdError } from '../../protocol/index.js';
import { isStopped, silentAdvice } from '../doctor/silent-broker.js';

/** Longest wait for an answer that the broker gives at once. */
export const answerMs = 30_000;
/** A broker answers when a deadline passes, with why; so much later that answer has come, or none will. */
export const answerGraceMs = 1_000;

/**
 * What `ask` brings. Where our own patience ended first, the error says how long that really was, and of whom: `pid` is
 * asked for then, null where nobody knows more than the error.
 */
export async function patiently<T>(ask: () => Promise<T>, pid: () => number | null): Promise<T> {
  const startedMs = performance.now();
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof LeaseholdError) || error.code !== 'deadline_passed' || error.details['reason'] !== 'no answer came') throw error;
    throw await silence(error, Math.round(performance.now() - startedMs), pid() ?? (Number(error.details['pid'] ?? '') || null));
  }
}

async function silence(cause: LeaseholdError, waitedMs: number, pid: number | null): Promise<LeaseholdError> {
  const stopped = await isStopped(pid);
  const who = `the broker${pid === null ? '' : ` (pid ${String(pid)})`}`;
  const details = { ...cause.details, deadlineMs: waitedMs, waitedMs, reason: `${who} ${stopped ? 'is stopped' : 'does not answer'}` };
  return new LeaseholdError('deadline_passed', details, { cause, help: silentAdvice(pid, stopped) });
}
