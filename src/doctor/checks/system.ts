/** What the broker stands on, each tried for real: foreign functions, sockets, locks, processes, the guard, the clock. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { createRequire } from 'node:module';
import { tmpdir, uptime } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError } from '../../../protocol/index.js';
import { listen, monotonicUs, peerCredentialsSupported } from '../../../protocol/node/index.js';
import { lockFile } from '../../../broker/shell/file-lock.js';
import { isAlive, nodeCommand, processTable, type ProcessIdentity } from '../../../broker/supervisor/index.js';
import { formatMs } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, warning, type Found } from '../finding.js';
import { readMounts } from '../machine/mounts.js';

const koffiCheck: Check = {
  id: 'system.koffi',
  title: 'Native calls (koffi)',
  async run() {
    try {
      const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
      const getpid = koffi.load(process.platform === 'win32' ? 'msvcrt.dll' : null).func(process.platform === 'win32' ? 'int _getpid()' : 'int getpid()') as () => number;
      if (getpid() === process.pid) return ok(`version ${koffi.version}; a call into the C library answers right`);
      return problem(`version ${koffi.version}; a call into the C library answers wrong`, koffiAdvice);
    } catch (error) {
      return problem(`it cannot be loaded: ${String(error)}`, koffiAdvice);
    }
  },
};
const koffiAdvice = 'Install the dependencies anew for this platform (`npm ci`): without it there are no locks, no peer credentials and no NVML.';

/** A folder of our own for the moment, on the disk where sockets and locks go when nobody says otherwise. */
async function inScratch<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-doctor-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const socketCheck: Check = {
  id: 'system.sockets',
  title: 'Sockets',
  run: () => inScratch(async (folder) => {
    const path = join(folder, 's.sock');
    const seen = await seenByListener(path);
    if (!peerCredentialsSupported) return warning('a socket works; who is at its other end cannot be seen here', 'The proof in `hello` is then the only gate: keep the state folder closed to others.');
    if (seen.peerUid === process.getuid?.() && seen.peerPid === process.pid) return ok('a socket works, and the kernel tells who is at its other end (SO_PEERCRED)');
    return problem(`a socket works, and its other end is told as pid ${String(seen.peerPid)} of uid ${String(seen.peerUid)}, which it is not`, 'The broker would refuse its own workers: run it and them in one user and pid namespace.');
  }),
};

async function seenByListener(path: string): Promise<{ readonly peerUid: number | null; readonly peerPid: number | null }> {
  let tell: (seen: { readonly peerUid: number | null; readonly peerPid: number | null }) => void = () => undefined;
  const seen = new Promise<{ readonly peerUid: number | null; readonly peerPid: number | null }>((resolve) => { tell = resolve; });
  const listener = await listen({ path, onConnection: ({ peerUid, peerPid }) => { tell({ peerUid, peerPid }); } });
  const socket = createConnection(path);
  try {
    return await Promise.race([seen, new Promise<never>((_resolve, reject) => { socket.once('error', reject); })]);
  } finally {
    socket.destroy();
    await listener.close();
  }
}

const lockCheck: Check = {
  id: 'system.flock',
  title: 'File locks (flock)',
  run: () => inScratch(async (folder) => {
    if (process.platform === 'win32') return notApplicable('the name of the broker\'s pipe is the lock here');
    const path = join(folder, 'a.lock');
    const lock = lockFile(path);
    try {
      lockFile(path).release();
      return problem('a lock that is held was given a second time', 'Two brokers could own one card: put the state folder on a local disk whose locks hold.');
    } catch (error) {
      if (LeaseholdError.from(error).code !== 'broker_running') throw error;
      return ok('a lock that is held is refused to others');
    } finally {
      lock.release();
    }
  }),
};

const processesCheck: Check = {
  id: 'system.processes',
  title: 'Process table',
  async run({ machine }) {
    const table = processTable();
    if (!table.lists) return notApplicable(`processes cannot be listed on ${machine.platform.name}: of a worker's tree its group is ended`);
    const rows = table.list();
    const us = rows?.find(({ pid }) => pid === process.pid);
    if (rows === null || us === undefined) return problem('/proc cannot be read', 'Mount it, or give this process the means (descriptors, memory): without it no end of a worker is ever confirmed.');
    const hidden = (await readMounts(machine)).find(({ type, options, superOptions }) => type === 'proc' && [...options, ...superOptions].some((option) => /^hidepid=(1|2|4|invisible|noaccess|ptraceable)$/.test(option)));
    return ok(`${String(rows.length)} processes can be seen${hidden === undefined ? '' : ', those of other users are hidden (hidepid), which only leaves strangers on a card without names'}`);
  },
};

const killCheck: Check = {
  id: 'system.kill',
  title: 'Ending a process',
  alone: true,
  async run(_scene, signal) {
    const { command, args, env } = nodeCommand(program('deaf'));
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] });
    signal.addEventListener('abort', () => child.kill('SIGKILL'), { once: true });
    try {
      // It says so once it is deaf to SIGTERM.
      await new Promise<void>((resolve, reject) => {
        child.stdout.once('data', () => { resolve(); });
        child.once('error', reject);
        child.once('exit', () => { reject(new Error('a child ended before it had begun')); });
      });
      const beganMs = performance.now();
      const ended = new Promise<void>((resolve) => { child.once('exit', () => { resolve(); }); });
      child.kill('SIGKILL');
      await ended;
      return ok(`a child that ignores SIGTERM is gone ${formatMs(performance.now() - beganMs)} after SIGKILL`);
    } finally {
      child.kill('SIGKILL');
    }
  },
};

/** Past this something of a dead broker would hold a card for longer than anybody waits. */
const guardPatienceMs = 10_000;

const guardCheck: Check = {
  id: 'system.guard',
  title: 'Guard of workers',
  alone: true,
  deadlineMs: 30_000,
  async run({ machine }, signal) {
    if (machine.platform.name === 'win32') return notApplicable('there is no guard on Windows: workers end when they see their connection end');
    const { command, args, env } = nodeCommand(program('mortal-broker'));
    const broker = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    signal.addEventListener('abort', () => broker.kill('SIGKILL'), { once: true });
    const worker = await new Promise<ProcessIdentity>((resolve, reject) => {
      let said = '';
      broker.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString('utf8');
        if (said.includes('\n')) resolve(JSON.parse(said) as ProcessIdentity);
      });
      broker.once('error', reject);
      broker.once('exit', () => { reject(new Error(`a broker for the moment could not start a worker: ${said}`)); });
    });
    return judgeGuard(broker, worker);
  },
};

async function judgeGuard(broker: ReturnType<typeof spawn>, worker: ProcessIdentity): Promise<Found> {
  const table = processTable();
  const beganMs = performance.now();
  broker.kill('SIGKILL');
  while (isAlive(table, worker)) {
    if (performance.now() - beganMs > guardPatienceMs) {
      table.signal(worker.pid, 'SIGKILL');
      return problem(`a worker outlived its broker by ${formatMs(guardPatienceMs)}`, 'The guard needs /bin/sh, grep and sleep in the PATH, and /proc: see that a minimal container has them.');
    }
    await pause(5);
  }
  return ok(`a worker is gone ${formatMs(performance.now() - beganMs)} after SIGKILL to its broker`);
}

const program = (name: string): string => fileURLToPath(new URL(`../programs/${name}.js`, import.meta.url));

/** A timer this late by itself would be judged as somebody's silence. */
const lateMs = 500;
const napMs = 50;
/** A wall clock before the first version was made. */
const firstYear = 2025;

const clockCheck: Check = {
  id: 'system.clock',
  title: 'Clocks',
  alone: true,
  async run({ machine }) {
    const uptimeText = await machine.readText('/proc/uptime');
    const beganUs = monotonicUs();
    await pause(napMs);
    const sleptMs = (monotonicUs() - beganUs) / 1_000;
    const sinceBootMs = uptimeText === null ? uptime() * 1_000 : Number(uptimeText.split(' ')[0]) * 1_000;
    return judgeClock({ sleptMs, monotonicMs: beganUs / 1_000, sinceBootMs, year: new Date().getUTCFullYear() });
  },
};

export interface ClockFigures {
  /** How long a nap of 50 ms took. */
  readonly sleptMs: number;
  readonly monotonicMs: number;
  /** Time since the machine was started, in which it may have slept. */
  readonly sinceBootMs: number;
  readonly year: number;
}

export function judgeClock({ sleptMs, monotonicMs, sinceBootMs, year }: ClockFigures): Found {
  const suspendedMs = sinceBootMs - monotonicMs;
  const found = `a nap of ${String(napMs)} ms took ${sleptMs.toFixed(1)} ms${suspendedMs > 5_000 ? `; the machine has been suspended for ${formatMs(suspendedMs)} since it was started` : ''}`;
  return assess(found, [
    sleptMs < napMs - 5 ? { verdict: 'problem', says: 'CLOCK_MONOTONIC does not run as it should', advice: 'Leases and deadlines are reckoned by it: look at the clock source (`cat /sys/devices/system/clocksource/clocksource0/current_clocksource`).' } : null,
    sleptMs > napMs + lateMs ? { verdict: 'warning', says: 'timers are late', advice: 'The machine has no time for us: end other work, or give the broker a core of its own.' } : null,
    year < firstYear ? { verdict: 'warning', says: `it is said to be the year ${String(year)}`, advice: 'Set the clock (`timedatectl set-ntp true`): downloads and certificates go by it, leases do not.' } : null,
  ]);
}

export const systemChecks: readonly Check[] = [koffiCheck, socketCheck, lockCheck, processesCheck, killCheck, guardCheck, clockCheck];
