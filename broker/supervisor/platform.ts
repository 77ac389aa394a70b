/** Which parts of the supervisor the platform has, and what is missing where. */
import { LeaseholdError } from '../../protocol/index.js';
import { LinuxProcessTable } from './process-table-linux.js';
import { PortableProcessTable } from './process-table-portable.js';
import type { ProcessTable } from './process-table.js';

export function processTable(platform: NodeJS.Platform = process.platform): ProcessTable {
  return platform === 'linux' ? new LinuxProcessTable() : new PortableProcessTable(platform);
}

/** What the supervisor cannot do on this platform, each as the error that a caller would get. */
export function supervisorNotes(platform: string = process.platform): readonly LeaseholdError[] {
  if (platform === 'linux') return [];
  const lacking = ['identity by start time', 'finding descendants that left their group'];
  if (platform === 'win32') lacking.push('ending a whole process tree', 'the guard that ends workers when the broker dies');
  return lacking.map((what) => new LeaseholdError('platform_unsupported', { what, platform }));
}

/**
 * Start time of the living process `pid`, in clock ticks since boot, as text; null when there is no such process or the
 * platform does not tell.
 */
export function startTimeOf(pid: number): string | null {
  return processTable().find(pid)?.startTime ?? null;
}
