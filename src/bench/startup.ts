/**
 * `startup`: from spawn to the first accepted hello of a daemon, and the import
 * of the library, each against `node -e 0` in the same run; and what the ready
 * daemon holds in RAM.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connectBroker } from '../client/index.js';
import { readStateFolder } from '../orchestrator/state.js';
import { microsecondsSince, round } from './percentiles.js';

export interface StartupFigures {
  readonly readyRatio: number;
  readonly importRatio: number;
  readonly residentBytes: number;
  readonly nodeMs: number;
  readonly readyMs: number;
  readonly importMs: number;
}

export const startupLimits = { readyRatio: 3, importRatio: 1.5, residentBytes: 90 * 1024 * 1024 };

interface Round {
  readonly nodeMs: number;
  readonly importMs: number;
  readonly readyMs: number;
  readonly residentBytes: number;
}

const repeats = 5;

export async function benchStartup(): Promise<StartupFigures> {
  const rounds: Round[] = [];
  for (let repeat = 0; repeat < repeats; repeat++) {
    const nodeMs = await runToEnd(['-e', '0']);
    const importMs = await runToEnd(['--input-type=module', '-e', `await import(${JSON.stringify(built('src/index.js').href)})`]);
    const ready = await measureReady();
    rounds.push({ nodeMs, importMs, ...ready });
  }
  const best = (ratio: (figures: Round) => number): number => round(Math.min(...rounds.map(ratio)));
  return {
    readyRatio: best(({ readyMs, nodeMs }) => readyMs / nodeMs),
    importRatio: best(({ importMs, nodeMs }) => importMs / nodeMs),
    residentBytes: Math.max(...rounds.map(({ residentBytes }) => residentBytes)),
    nodeMs: best(({ nodeMs }) => nodeMs),
    readyMs: best(({ readyMs }) => readyMs),
    importMs: best(({ importMs }) => importMs),
  };
}

async function measureReady(): Promise<{ readonly readyMs: number; readonly residentBytes: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'lh-'));
  const state = join(folder, 'state');
  const start = process.hrtime.bigint();
  const daemon = spawn(process.execPath, [fileURLToPath(built('bin/leasehold.js')), 'up', '--device', 'sim:24MiB'], {
    cwd: folder, stdio: 'ignore', env: { ...process.env, LEASEHOLD_STATE: state, LEASEHOLD_CONFIG: '' },
  });
  try {
    await firstHello(state);
    const readyMs = microsecondsSince(start) / 1000;
    return { readyMs, residentBytes: residentBytesOf(daemon.pid ?? 0) };
  } finally {
    daemon.kill('SIGTERM');
    await new Promise((resolve) => daemon.once('exit', resolve));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Tries until a hello is accepted; each try is cheap, and a daemon that never comes up ends the benchmark. */
async function firstHello(state: string): Promise<void> {
  for (const end = Date.now() + 30_000; ;) {
    try {
      const folder = readStateFolder(state);
      if (folder !== null) {
        const session = await connectBroker({ socketPath: folder.socketPath, secret: folder.secret, role: 'client', name: 'bench' });
        await session.close();
        return;
      }
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    if (Date.now() > end) throw new Error('the daemon did not come up');
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** VmRSS on Linux; elsewhere this bench has no figure for another process and says NaN. */
function residentBytesOf(pid: number): number {
  if (process.platform !== 'linux') return NaN;
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${String(pid)}/status`, 'utf8'));
  return Number(match?.[1]) * 1024;
}

async function runToEnd(args: readonly string[]): Promise<number> {
  const start = process.hrtime.bigint();
  const child = spawn(process.execPath, args, { stdio: 'ignore' });
  const code = await new Promise((resolve) => child.once('exit', resolve));
  if (code !== 0) throw new Error(`node ${args.join(' ')} ended with ${String(code)}`);
  return microsecondsSince(start) / 1000;
}

function built(path: string): URL {
  return new URL(`../../${path}`, import.meta.url);
}
