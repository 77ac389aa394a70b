/**
 * How long a request may wait behind others while its card works as it should.
 * Until its class's longest wait is over anybody may pass it (queue.ts); from
 * then on only the older ones go before it, of which there are no more than
 * wait now. Each of those has its turn, and then it has its own:
 *
 *   bound = longestWaitMs + (older + 1) x turn
 *   turn  = load + residency + rounds x (commandAnswerMs + drainTimeoutMs + moveTimeoutMs + releaseConfirmMs)
 *
 * A turn begins with the load of whoever has just been let in and the residency
 * that no eviction may cut short; then victims answer, are drained, move, and
 * are seen gone, each within its limit. Busy ones go first and idle ones when
 * that has worked (two rounds); on a card that is read by its total alone one
 * victim goes after the other. Damping and patience add nothing: they keep
 * nobody who has waited out its class (thrash).
 */
import type { ClassPolicy, Limits } from '../../../protocol/index.js';

export interface Behind {
  /** Of its own class. */
  readonly longestWaitMs: number;
  /** Waiting requests that are older, of whatever class. */
  readonly older: number;
  /** The longest load of those before it and of what loads there. */
  readonly loadMs: number;
  /** The longest minimum residency of any class. */
  readonly residencyMs: number;
  /** Victims that go one after the other. */
  readonly rounds: number;
}

type Steps = Pick<Limits, 'commandAnswerMs' | 'drainTimeoutMs' | 'moveTimeoutMs' | 'releaseConfirmMs'>;

/** The longest wait behind others, from the arrival, in ms. */
export function longestWaitBehindOthersMs({ longestWaitMs, older, loadMs, residencyMs, rounds }: Behind, limits: Steps): number {
  const roundMs = limits.commandAnswerMs + limits.drainTimeoutMs + limits.moveTimeoutMs + limits.releaseConfirmMs;
  return longestWaitMs + (older + 1) * (loadMs + residencyMs + rounds * roundMs);
}

/** The longest minimum residency that a policy gives to any class. */
export function residencyMaxMs(policies: readonly ClassPolicy[]): number {
  return Math.max(0, ...policies.map(({ minimumResidencyMs }) => minimumResidencyMs));
}
