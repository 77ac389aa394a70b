/** Time, as every process of one machine sees it. */
export { monotonicUs as nowUs } from '../../protocol/node/index.js';

/** Whole milliseconds between two moments, never negative. */
export function elapsedMs(fromUs: number, toUs: number): number {
  return Math.max(0, Math.round((toUs - fromUs) / 1000));
}
