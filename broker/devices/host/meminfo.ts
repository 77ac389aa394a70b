/** The machine's own memory, by /proc/meminfo. */
import { Unreadable } from './files.js';

export interface MachineMemory {
  readonly totalBytes: number;
  /**
   * What programs can have without swapping, as the kernel estimates it: free pages and what of the page cache and of
   * slabs it would give up. tmpfs and shared memory, locked pages and huge pages set aside are not among it, nor is swap.
   */
  readonly availableBytes: number;
}

/** Throws `Unreadable` (`unknown`) when a figure is missing: nothing is guessed from the others. */
export function parseMeminfo(text: string): MachineMemory {
  const totalBytes = kibOf(text, 'MemTotal');
  const availableBytes = kibOf(text, 'MemAvailable');
  if (totalBytes === 0 || availableBytes > totalBytes) throw new Unreadable('unknown', `meminfo tells of ${availableBytes} bytes available of ${totalBytes}`);
  return { totalBytes, availableBytes };
}

function kibOf(text: string, name: string): number {
  const figure = new RegExp(`^${name}: +(\\d{1,15}) kB$`, 'm').exec(text)?.[1];
  if (figure === undefined) throw new Unreadable('unknown', `meminfo has no ${name}`);
  return Number(figure) * 1_024;
}
