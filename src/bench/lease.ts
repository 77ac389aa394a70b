/**
 * `lease`: what a release and a grant cost from another process, against a
 * ping-pong over bare node:net of the same frames and codec, and against the
 * same bytes with no codec at all. Ratios of one run, measured in turns, best
 * of its repeats.
 */
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startBareBroker } from './bare-broker.js';
import type { LeasePeerTask, LeaseRound } from './lease-peer.js';
import { round } from './percentiles.js';
import { servePingPong } from './ping-pong.js';

export interface LeaseFigures {
  readonly p50Ratio: number;
  readonly p99Ratio: number;
  readonly p50RatioToBareBytes: number;
  readonly p50Us: number;
  readonly p99Us: number;
  readonly grants: number;
  /** Heap of the broker's process after the grants less before, both after a full collection. */
  readonly heapGrowthBytes: number;
}

export const leaseLimits = { p50Ratio: 1.35, p99Ratio: 2.5, heapGrowthBytes: 2 * 1024 * 1024 };

export async function benchLease(grants: number): Promise<LeaseFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'lh-'));
  const broker = await startBareBroker(join(folder, 'state'));
  const [bytesSocket, codecSocket] = [join(folder, 'bytes.sock'), join(folder, 'codec.sock')];
  const servers = [await servePingPong(bytesSocket, 'bytes', broker.device), await servePingPong(codecSocket, 'codec', broker.device)];
  try {
    const task: LeasePeerTask = {
      brokerSocket: broker.socketPath, secret: broker.secret, bytesSocket, codecSocket, device: broker.device,
      rounds: 4_000, warmUp: 1_000, repeats: 5, grants,
    };
    const { rounds, heapGrowthBytes } = await runPeer(task);
    return { ...bestOf(rounds), grants, heapGrowthBytes };
  } finally {
    for (const server of servers) server.close();
    await broker.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function bestOf(rounds: readonly LeaseRound[]): Omit<LeaseFigures, 'grants' | 'heapGrowthBytes'> {
  const best = (ratio: (round: LeaseRound) => number): number => round(Math.min(...rounds.map(ratio)));
  return {
    p50Ratio: best(({ lease, codec }) => lease.p50 / codec.p50),
    p99Ratio: best(({ lease, codec }) => lease.p99 / codec.p99),
    p50RatioToBareBytes: best(({ lease, bytes }) => lease.p50 / bytes.p50),
    p50Us: best(({ lease }) => lease.p50),
    p99Us: best(({ lease }) => lease.p99),
  };
}

function runPeer(task: LeasePeerTask): Promise<{ readonly rounds: readonly LeaseRound[]; readonly heapGrowthBytes: number }> {
  const script = fileURLToPath(new URL('./lease-peer.js', import.meta.url));
  const peer = fork(script, [], { env: { ...process.env, LEASEHOLD_BENCH: JSON.stringify(task) }, execArgv: [] });
  let rounds: readonly LeaseRound[] = [];
  let heapBefore = 0;
  return new Promise((resolve, reject) => {
    peer.on('message', (message: { readonly rounds?: readonly LeaseRound[]; readonly done?: true }) => {
      if (message.rounds !== undefined) {
        rounds = message.rounds;
        heapBefore = heapBytes();
      }
      if (message.done === true) resolve({ rounds, heapGrowthBytes: heapBytes() - heapBefore });
    });
    peer.once('error', reject);
    peer.once('exit', (code) => { if (code !== 0) reject(new Error(`the measuring process ended with ${String(code)}`)); });
  });
}

function heapBytes(): number {
  // Asked for here: without it the figure is mostly what happened not to be collected yet.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  return process.memoryUsage().heapUsed;
}
