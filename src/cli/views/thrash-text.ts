/** A card on which models take turns, in plain words: for `ps`, the terminal of a daemon and the doctor. */
import type { ThrashView } from '../../orchestrator/index.js';
import { formatBytes, formatMs } from '../terminal/size-format.js';

/** Models told by name; the rest are counted. */
const namesMax = 4;

export function thrashText({ shareOfTime, windowMs, models, neededBytes, capacityBytes }: ThrashView): string {
  const turns = models.slice(0, namesMax).map(({ model, loads, loadMs }) => `${model} (${loads === 1 ? 'once' : `${String(loads)} times`}, ${formatMs(loadMs)})`);
  const more = models.length > namesMax ? ` and ${String(models.length - namesMax)} more` : '';
  const lackingBytes = neededBytes - capacityBytes;
  const lack = lackingBytes > 0 ? `; ${formatBytes(lackingBytes)} are lacking for all of them to stay` : '';
  return `${(shareOfTime * 100).toFixed(0)} % of the last ${formatMs(windowMs)} went into loading again what had been put away for each other: ${turns.join(', ')}${more}${lack}`;
}

export const thrashAdvice = 'While this lasts, what has a queue of calls stays loaded longer. To end it: give them a smaller context or fewer slots, another card (devices), or a smaller file; pin the one that must stay (leasehold pin MODEL); or class: background for the one that may wait.';
