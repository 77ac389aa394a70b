/** A broker that is there and says nothing: whether somebody has stopped it, and what to do about it. One word for whoever comes upon it. */
import { readSmall } from './small-file.js';

/** SIGSTOP, Ctrl-Z or a debugger; false where the system does not tell. */
export async function isStopped(pid: number | null): Promise<boolean> {
  if (pid === null) return false;
  return hasStopped(await readSmall(`/proc/${String(pid)}/stat`) ?? '');
}

/** The state is the first word after the name, which may have anything in it. */
export function hasStopped(stat: string): boolean {
  return /^[Tt]\b/.test(stat.slice(stat.lastIndexOf(')') + 2));
}

export function silentAdvice(pid: number | null, stopped: boolean): string {
  if (pid === null) return 'See who has its socket, and end it.';
  const id = String(pid);
  if (stopped) return `Let it go on: \`kill -CONT ${id}\`; or end it: \`kill -9 ${id}\`.`;
  return `See what it does (\`ps -fp ${id}\`); if it does not come back within a minute, end it: \`kill ${id}\`, then \`kill -9 ${id}\`.`;
}
