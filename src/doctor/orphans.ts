/** Workers that outlive a broker which ended without stopping: who they are, and what becomes of them. */
import { durationText } from '../../protocol/index.js';
import type { LivingWorker } from '../../broker/shell/index.js';

export interface Orphans {
  readonly pids: string;
  /** When it ended nobody knows: from now they live at most so long; null: their broker did not say. */
  readonly graceMs: number | null;
  /** `1 worker lives on (pid 4711)`. */
  readonly text: string;
  readonly advice: string;
}

/** `workers`: at least one. */
export function orphansOf(workers: readonly LivingWorker[]): Orphans {
  const pids = workers.map(({ pid }) => pid).join(', ');
  const graceMs = Math.max(...workers.map(({ graceMs: each }) => each ?? 0));
  const [many, them, have, they] = workers.length === 1 ? ['1 worker lives', 'it', 'it has', 'it ends by itself'] : [`${String(workers.length)} workers live`, 'them', 'they have', 'they end by themselves'];
  const until = graceMs === 0 ? '' : `, within ${durationText(graceMs)} at the latest`;
  return {
    pids, graceMs: graceMs === 0 ? null : graceMs, text: `${many} on (pid ${pids}), for the next one`,
    advice: `Start it again with \`leasehold up\`: it takes ${them} over with what ${have} loaded. Else ${they}${until}.`,
  };
}
