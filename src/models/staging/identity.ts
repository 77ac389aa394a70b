/** Who holds a lock or writes a partial file, so that others can tell whether it still lives. */
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

export interface Holder {
  /** One for each hold. */
  readonly token: string;
  /** Processes of one machine (and pid namespace) can look at each other; of any other only its signs of life are seen. */
  readonly machine: string;
  readonly pid: number;
  /** When the process started, as the system counts; null where that cannot be told. */
  readonly startTime: string | null;
}

const machine = machineOf();

/** This process, under a token of its own. */
export function newHolder(): Holder {
  return { token: randomBytes(8).toString('hex'), machine, pid: process.pid, startTime: startTimeOf(process.pid) };
}

/** `unknown`: a process of another machine. */
export function lifeOf({ machine: where, pid, startTime }: Omit<Holder, 'token'>): 'lives' | 'dead' | 'unknown' {
  if (where !== machine) return 'unknown';
  try {
    process.kill(pid, 0);
  } catch (error) {
    // Somebody else's process is alive all the same.
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return 'dead';
  }
  const now = startTimeOf(pid);
  return startTime !== null && now !== null && now !== startTime ? 'dead' : 'lives';
}

function machineOf(): string {
  const read = (get: () => string): string => {
    try {
      return get().trim().replace(/[^A-Za-z0-9-]/g, '');
    } catch {
      // Only Linux has it; the host's name serves elsewhere.
      return hostname().replace(/[^A-Za-z0-9-]/g, '');
    }
  };
  return `${read(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8')).slice(0, 13)}-${read(() => readlinkSync('/proc/self/ns/pid')).slice(-10)}`;
}

/** Field 22 of /proc/PID/stat; a zombie is dead for our purposes, and has none. */
function startTimeOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${String(pid)}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? 'gone' : fields[19] ?? null;
  } catch {
    // No /proc, or the process went meanwhile: then the next look says so.
    return null;
  }
}
