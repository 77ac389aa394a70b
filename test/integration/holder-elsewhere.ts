/** Other programs that hold leases of a broker under test. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Test } from 'tap';
import { lives } from './support.js';

/** A holder in a process of its own, or in one that it has handed its connection to before it ended. */
export async function holderElsewhere(t: Test, stateFolder: string, model: string, how: 'stay' | 'hands' = 'stay'): Promise<{ readonly pid: number; readonly lease: string }> {
  const started = spawn(process.execPath, [join(import.meta.dirname, 'handed-holder.js'), stateFolder, model, how], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(started, 'exit');
  const [line] = await once(createInterface(started.stdout), 'line') as [string];
  const holder = JSON.parse(line) as { readonly pid: number; readonly lease: string };
  t.teardown(() => { if (lives(holder.pid)) process.kill(holder.pid, 'SIGKILL'); });
  if (how === 'hands') await ended;
  return holder;
}
