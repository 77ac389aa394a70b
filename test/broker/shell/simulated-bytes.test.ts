/** Bytes of simulated cards, taken by holders: they come back when the process has ended, however it did, or for our own when its session has. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import t, { type Test } from 'tap';
import type { LeaseholdError } from '../../../protocol/index.js';
import { silentLog } from '../../../broker/shell/index.js';
import { MiB, card, folder, open, peer, refusal, until, type Peer } from '../../integration/support.js';
import type { Orchestrator } from '../../../src/orchestrator/index.js';

const support = new URL('../../integration/support.js', import.meta.url).href;

/** A holder in a process of its own that takes 8 MiB, says so, and ends with 0 when it hears anything. */
async function holderProcess(t: Test, stateFolder: string, device: string): Promise<{ readonly end: (how: 'kill' | 'exit') => Promise<void>; readonly hangUp: () => Promise<void> }> {
  const program = `
    const [support, stateFolder, device] = process.argv.slice(1);
    const { peer } = await import(support);
    const odd = await peer(stateFolder, 'holder');
    await odd.ask({ type: 'card_allocate', device, bytes: ${String(8 * MiB)} });
    process.stdin.once('data', () => { odd.channel.end(); odd.closed.then(() => console.log('hung up')); process.stdin.once('data', () => process.exit(0)); });
    console.log('taken');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program, support, stateFolder, device], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  t.match(await lines.next(), { value: 'taken' });
  const hangUp = async (): Promise<void> => {
    child.stdin.write('hang up\n');
    t.match(await lines.next(), { value: 'hung up' });
  };
  return {
    hangUp,
    end: async (how) => {
      if (how === 'kill') child.kill('SIGKILL');
      else {
        await hangUp();
        child.stdin.write('exit\n');
      }
      await exited;
    },
  };
}

async function usedBytes(orchestrator: Orchestrator): Promise<number> {
  return (await card(orchestrator)).usedBytes;
}

t.test('a holder that ends gives its bytes back after the lag, killed or by itself', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB,floor=1MiB,lag=100ms'] });
  const { device } = await card(orchestrator);
  for (const how of ['kill', 'exit'] as const) {
    const [holder, other] = [await holderProcess(t, stateFolder, device), await holderProcess(t, stateFolder, device)];
    t.equal(await usedBytes(orchestrator), 18 * MiB);
    await holder.end(how);
    await until(`its bytes to be back after ${how}`, async () => (await usedBytes(orchestrator)) === 9 * MiB);
    t.equal(await usedBytes(orchestrator), 9 * MiB, 'and those of others stay');
    await other.hangUp();
    t.equal(await usedBytes(orchestrator), 9 * MiB, 'D7: the end of a session is not the end of its process');
    await other.end('kill');
    await until('the card to be empty', async () => (await usedBytes(orchestrator)) === 0);
  }
});

t.test('a session of our own process gives back what was taken in it, and no more', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB,floor=1MiB'] });
  const { device } = await card(orchestrator);
  const take = async (by: Peer, bytes: number): Promise<number> => {
    const answer = await by.ask({ type: 'card_allocate', device, bytes });
    return (answer as { readonly allocation: number }).allocation;
  };
  const [first, second] = [await peer(stateFolder, 'holder'), await peer(stateFolder, 'holder')];
  await take(first, 4 * MiB);
  const freed = await take(first, 2 * MiB);
  const kept = await take(second, 8 * MiB);
  await second.ask({ type: 'card_free', device, allocation: freed });
  t.equal(await usedBytes(orchestrator), 13 * MiB);
  first.channel.end();
  await until('the first to give back', async () => (await usedBytes(orchestrator)) === 9 * MiB);
  await second.ask({ type: 'card_free', device, allocation: kept });
  const error: LeaseholdError = await refusal(second.ask({ type: 'card_free', device, allocation: kept }));
  t.equal(error.code, 'input_invalid');
  await take(second, MiB);
  second.channel.end();
  await until('the last to give back its context, too', async () => (await usedBytes(orchestrator)) === 0);
  t.equal((await card(orchestrator)).peakUsedBytes, 15 * MiB);
});

t.test('lines of a card’s journal that cannot be true of it are not believed and told; the card reads as before', async (t) => {
  const stateFolder = folder(t);
  const devices = ['sim:64MiB,floor=1MiB'];
  const first = await open(t, { stateFolder, devices });
  const { device } = await card(first);
  await first.close();
  const path = join(stateFolder, 'simulated', `${device}.journal`);
  const attach = { kind: 'attach', pid: process.pid, startTime: null, floorBytes: MiB };
  const allocate = { kind: 'allocate', pid: process.pid, allocation: 1, bytes: 8 * MiB, name: null };
  const written = [
    { ...attach, floorBytes: Number.MAX_SAFE_INTEGER }, attach, allocate,
    { ...allocate, allocation: 77, bytes: 900_719_925_474_099 }, { ...allocate, allocation: Number.MAX_SAFE_INTEGER, bytes: 1 },
    { ...allocate, allocation: 2, bytes: 60 * MiB }, { ...allocate, allocation: 3, bytes: 4 * MiB },
  ];
  writeFileSync(path, `${written.map((entry) => JSON.stringify(entry)).join('\n')}\nrubbish\n`, { mode: 0o600 });
  const told: unknown[] = [];
  const log = { ...silentLog, warn: (fields: unknown, text: string) => { told.push({ fields, text }); } };
  const second = await open(t, { stateFolder, devices, log });
  t.match(await card(second), { usedBytes: 13 * MiB, missing: null });
  t.match(told, [{ fields: { device, lines: 5 }, text: 'lines of what a simulated card has given out are not believed' }]);
  const holder = await peer(stateFolder, 'holder');
  t.match(await holder.ask({ type: 'card_allocate', device, bytes: MiB }), { allocation: 4 }, 'and it gives out what it has');
});
