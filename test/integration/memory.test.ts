/** The machine's memory as a second ledger, with real processes: copies that are kept, given back, parked and refused; and who is the kernel's victim. */
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import type { LedgerState, Orchestrator } from '../../src/orchestrator/index.js';
import type { ModelScript } from '../../workers/simulated/script.js';
import { MiB, engine, keyOf, leaseOf, open, refusal, scripted, until, workerPid, type Given } from './support.js';

/** 8 MiB of weights that can be parked. */
const parkable = (script: Partial<ModelScript> = {}): ReturnType<typeof scripted> => scripted({ weightsBytes: 8 * MiB, contextBytesPerToken: 0, parkable: true, ...script });

/** Simulated memory beside the simulated card. */
async function withMemory(t: Test, lease: string, given: Given = {}): Promise<Orchestrator> {
  return open(t, { hostMemory: { lease }, ...given });
}

async function memoryOf(orchestrator: Orchestrator): Promise<NonNullable<LedgerState['host']> & LedgerState['simulatedCards'][number]> {
  const { host, simulatedCards } = await orchestrator.ledger();
  const simulated = simulatedCards.find(({ device }) => device === host?.device);
  if (host === null || simulated === undefined) throw new Error('its memory is not leased');
  return { ...host, ...simulated };
}

/** Whatever was said: no byte was refused, and none was promised twice. */
async function neverShort(t: Test, orchestrator: Orchestrator): Promise<void> {
  const { counters, host } = await orchestrator.ledger();
  t.equal((await memoryOf(orchestrator)).oomRefusals, 0);
  t.ok(counters[`maxOverReserveBytes.${host?.device ?? ''}`]! <= 0);
}

t.test('R57: a copy is leased with the load, and parking takes nothing more', async (t) => {
  const orchestrator = await withMemory(t, 'sim:64MiB,floor=1MiB', { models: { a: parkable() } });
  await orchestrator.load('a');
  t.match(await leaseOf(orchestrator, 'a'), { hostBytes: 8 * MiB });
  await until('a reading of it', async () => (await memoryOf(orchestrator)).sampledUsedBytes === 9 * MiB);
  const { leasedBytes, floorBytes } = await memoryOf(orchestrator);
  t.ok(leasedBytes >= 8 * MiB && leasedBytes < 10 * MiB);
  t.equal(floorBytes, MiB, 'what the process has there by itself');
  t.ok(await orchestrator.evict('a', { target: 'host' }) >= 8 * MiB);
  t.match(await leaseOf(orchestrator, 'a'), { state: 'parked', hostBytes: 8 * MiB });
  t.equal((await memoryOf(orchestrator)).usedBytes, 9 * MiB);
  t.equal((await orchestrator.generate('a', 'again').result()).text, 'again');
  await orchestrator.evict('a');
  await until('all to be back but the process', async () => (await memoryOf(orchestrator)).sampledUsedBytes === MiB && (await memoryOf(orchestrator)).leasedBytes === 0);
  await neverShort(t, orchestrator);
});

t.test('B184: a model whose copy has no room is served without one, and unloaded where it would have been parked', async (t) => {
  const orchestrator = await withMemory(t, 'sim:6MiB', { devices: ['sim:12MiB'], models: { a: parkable(), b: scripted({ weightsBytes: 8 * MiB }) } });
  t.equal((await orchestrator.generate('a', 'hello').result()).text, 'hello');
  t.match(await leaseOf(orchestrator, 'a'), { state: 'resident', hostBytes: 0 });
  await orchestrator.load('b');
  t.equal(await leaseOf(orchestrator, 'a'), null, 'unloaded, not parked');
  t.equal((await memoryOf(orchestrator)).peakUsedBytes, 0);
  await neverShort(t, orchestrator);
});

t.test('B185: a park begins only with room for its peak', async (t) => {
  const script = { keepsCopy: false, parkPeakBytes: 16 * MiB };
  const roomy = await withMemory(t, 'sim:20MiB', { models: { a: parkable(script) } });
  await roomy.load('a');
  await roomy.evict('a', { target: 'host' });
  t.match(await leaseOf(roomy, 'a'), { state: 'parked' });
  t.equal((await memoryOf(roomy)).peakUsedBytes, 16 * MiB);
  await neverShort(t, roomy);
  const tight = await withMemory(t, 'sim:15MiB', { models: { a: parkable(script) } });
  await tight.load('a');
  await tight.evict('a', { target: 'host' });
  t.equal(await leaseOf(tight, 'a'), null);
  t.equal((await memoryOf(tight)).peakUsedBytes, 0);
  await neverShort(t, tight);
});

t.test('R57, B188: the copy of a model that goes on serving is the first victim; then what is parked goes', async (t) => {
  const orchestrator = await withMemory(t, 'sim:20MiB', {
    models: { busy: parkable({ text: 'word '.repeat(600), tokensPerSecond: 100 }), a: parkable(), needy: { ...scripted({ weightsBytes: MiB, hostBytes: 10 * MiB }), pinned: true }, more: scripted({ weightsBytes: MiB, hostBytes: 8 * MiB }) },
  });
  await orchestrator.load('busy');
  await orchestrator.load('a');
  await orchestrator.evict('a', { target: 'host' });
  const stop = new AbortController();
  const answer = refusal(orchestrator.generate('busy', 'go on', { signal: stop.signal }).result());
  await until('it to be at work', async () => (await leaseOf(orchestrator, 'busy'))?.inFlight === 1);
  await orchestrator.load('needy');
  t.match(await leaseOf(orchestrator, 'busy'), { state: 'resident', hostBytes: 0, inFlight: 1 }, 'trimmed in the middle of a call');
  t.match(await leaseOf(orchestrator, 'a'), { state: 'parked', hostBytes: 8 * MiB });
  await orchestrator.load('more');
  t.equal(await leaseOf(orchestrator, 'a'), null, 'there was no copy left to spare');
  const actions = (await orchestrator.explain(undefined, 200)).flatMap(({ victims }) => victims.map(({ action }) => action));
  t.strictSame(actions.filter((action) => action === 'trim' || action === 'unload'), ['unload', 'trim'], 'newest first');
  stop.abort();
  await answer;
  await neverShort(t, orchestrator);
});

t.test('a copy that cannot go by itself stays with its model, and who needs the room is told', async (t) => {
  const orchestrator = await withMemory(t, 'sim:12MiB', { models: { a: parkable({ copyIsFixed: true }), b: scripted({ weightsBytes: MiB, hostBytes: 8 * MiB }) } });
  await orchestrator.load('a');
  await orchestrator.pin('a');
  const error = await refusal(orchestrator.load('b', { deadlineMs: 3_000 }));
  t.match(error, { code: 'deadline_passed', details: { reason: /the machine's memory/ } }, 'what it waited for has a name');
  t.match(await leaseOf(orchestrator, 'a'), { hostBytes: 8 * MiB });
  await neverShort(t, orchestrator);
});

t.test('what can never have room in memory is refused at once', async (t) => {
  const orchestrator = await withMemory(t, 'sim:12MiB', { models: { a: scripted({ weightsBytes: MiB, hostBytes: 4 * MiB, hostPeakBytes: 13 * MiB }) } });
  t.match(await refusal(orchestrator.load('a')), { code: 'never_fits' });
});

t.test('B211: a process that grows is asked to give back; one that does not is replaced once it is idle', async (t) => {
  const growing = (growthGivenBack: boolean): Given => ({
    limits: { hostGrowthBytesMax: 3 * MiB, commandAnswerMs: 300 },
    engines: engine({ growthBytes: 2 * MiB, growthGivenBack }, 2),
    models: { stays: parkable({ weightsBytes: MiB }), comes: scripted({ weightsBytes: MiB }) },
  });
  for (const givesBack of [true, false]) {
    const orchestrator = await withMemory(t, 'sim:64MiB', growing(givesBack));
    await orchestrator.load('stays');
    const before = await workerPid(orchestrator, 'stays');
    for (let turn = 0; turn < 2; turn++) {
      await orchestrator.load('comes');
      t.equal(await workerPid(orchestrator, 'comes'), before, 'both in one process');
      await orchestrator.evict('comes');
    }
    await until('the growth to be seen', async () => ((await orchestrator.ledger()).counters['hostGrowths'] ?? 0) > 0);
    if (givesBack) {
      await until('the growth to be given back', async () => (await memoryOf(orchestrator)).usedBytes <= 2 * MiB);
      t.equal(await workerPid(orchestrator, 'stays'), before);
      t.equal((await orchestrator.ledger()).counters['terminations.host_growth'], undefined);
    } else {
      await until('the process to be replaced', async () => ((await orchestrator.ledger()).counters['terminations.host_growth'] ?? 0) > 0);
      await until('all to be back', async () => (await memoryOf(orchestrator)).usedBytes === 0);
      await orchestrator.load('stays');
      t.not(await workerPid(orchestrator, 'stays'), before);
    }
    await neverShort(t, orchestrator);
  }
});

t.test('a program that holds a card leases memory beside it in the same request', async (t) => {
  const orchestrator = await withMemory(t, 'sim:12MiB', { models: { a: scripted({ weightsBytes: MiB, hostBytes: 8 * MiB }) } });
  const lease = (key: string, copyBytes: number) => orchestrator.lease({ model: key, bytes: MiB, parkable: true, host: { copyBytes }, onEvict: () => ({ residentBytes: 0 }) });
  const [first, second] = [await lease('one', 8 * MiB), await lease('two', 8 * MiB)];
  t.equal(first.keepCopy, true);
  t.equal(second.keepCopy, false, 'no room for another');
  await first.loaded({ residentBytes: MiB, hostBytes: 8 * MiB });
  t.ok((await memoryOf(orchestrator)).leasedBytes >= 8 * MiB);
  t.match(await refusal(orchestrator.lease({ model: 'three', bytes: MiB, host: { copyBytes: -1 }, onEvict: () => ({ residentBytes: 0 }) })), { code: 'input_invalid', details: { field: 'host.copyBytes' } });
  first.release();
  second.release();
  await until('all to be back', async () => (await memoryOf(orchestrator)).leasedBytes === 0);
});

t.test('the memory of this very machine: what processes have is seen, and a copy with it', { skip: process.platform === 'linux' ? false : 'only Linux tells' }, async (t) => {
  const orchestrator = await open(t, { hostMemory: { lease: 'system', reserveBytes: 0 }, models: { a: parkable({ weightsBytes: 48 * MiB }) } });
  await orchestrator.load('a');
  const seen = await until('the worker and its copy to be seen', async () => {
    const { processes } = await orchestrator.ledger();
    const worker = processes.find(({ role }) => role === 'worker');
    return (worker?.memoryBytes ?? 0) > 64 * MiB ? worker : null;
  });
  t.ok(seen.memoryBytes! < 1_024 * MiB);
  const { host } = await orchestrator.ledger();
  t.match(host, { device: 'HOST-0', kind: 'host', truth: 'system' });
  t.ok(host!.leasedBytes >= 48 * MiB && host!.leasedBytes < 64 * MiB);
  t.ok(host!.floorBytes > 10 * MiB, 'and what it had before');
  t.equal(keyOf(orchestrator, 'a'), (await leaseOf(orchestrator, 'a'))?.model);
  await orchestrator.evict('a', { target: 'host' });
  t.match(await leaseOf(orchestrator, 'a'), { state: 'parked', hostBytes: 48 * MiB });
});

t.test('R57: the kernel would sooner end a worker than the broker', { skip: process.platform === 'linux' ? false : 'only Linux has it' }, async (t) => {
  const orchestrator = await open(t, { models: { a: scripted() } });
  await orchestrator.load('a');
  const scoreOf = (pid: number | 'self'): number => Number(readFileSync(`/proc/${String(pid)}/oom_score_adj`, 'utf8'));
  t.equal(scoreOf(await workerPid(orchestrator, 'a')), Math.min(1_000, scoreOf('self') + 500));
});

t.test('memory that is not leased is in no ledger', async (t) => {
  const orchestrator = await open(t, { models: { a: parkable() } });
  await orchestrator.load('a');
  t.equal((await orchestrator.ledger()).host, null, 'every card is simulated');
  await orchestrator.evict('a', { target: 'host' });
  t.match(await leaseOf(orchestrator, 'a'), { state: 'parked' }, 'parked whatever there is');
});
