/**
 * What one process has of the machine's memory that nobody else gives back for it. Its pages of files are left out:
 * the kernel drops them when it needs room, and they count as available. /proc/PID/status keeps these counts, so that
 * reading them costs the same whatever the size; the exact share (`smaps_rollup`) walks every page with the process's
 * memory map locked. A process that forks counts what it still shares with its children once for each.
 */
import { join } from 'node:path';
import { textOf } from './files.js';

/** Anonymous and shared bytes of a process; null when it is gone, or has no memory of its own (a kernel thread, a zombie). */
export function processMemoryBytes(procFolder: string, pid: number): number | null {
  return parseStatus(textOf(join(procFolder, String(pid), 'status')) ?? '');
}

export function parseStatus(text: string): number | null {
  const anonymous = kibOf(text, 'RssAnon');
  // Kernels before 4.5 do not part them.
  if (anonymous === null) return kibOf(text, 'VmRSS');
  return anonymous + (kibOf(text, 'RssShmem') ?? 0);
}

function kibOf(text: string, name: string): number | null {
  const figure = new RegExp(`^${name}:\\s+(\\d{1,15}) kB$`, 'm').exec(text)?.[1];
  return figure === undefined ? null : Number(figure) * 1_024;
}
