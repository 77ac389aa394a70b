/**
 * Whom the kernel ends when the machine's memory runs out. Raising one's own processes needs no privilege, lowering
 * oneself does: so the workers are made the likelier victims by far, and the broker, which can start them anew, stays.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Half of the scale's upper side: as if it had half of the machine's memory on top of its own. */
const raisedBy = 500;
const scoreMax = 1_000;

/** Raises a process that has just been started, whose children inherit it; null, or why it could not be. Elsewhere than on Linux there is nothing to raise. */
export function preferAsVictim(pid: number, procFolder = '/proc'): string | null {
  if (process.platform !== 'linux') return null;
  try {
    const own = Number(readFileSync(join(procFolder, 'self/oom_score_adj'), 'utf8'));
    writeFileSync(join(procFolder, String(pid), 'oom_score_adj'), String(Math.min(scoreMax, (Number.isSafeInteger(own) ? own : 0) + raisedBy)));
    return null;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    // It has ended already.
    return code === 'ENOENT' || code === 'ESRCH' ? null : code;
  }
}
