/** Workers that die, stop, flood and are impersonated, as real processes: callers are told or served, and nothing is left behind. */
import { createHmac } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { connect, openChannel } from '../../protocol/node/index.js';
import { LeaseholdError, defaultLimits, type Limits } from '../../protocol/index.js';
import {
  MiB, carriers, engine, folder, leaseOf, lives, open, openFiles, rawPeer, refusal, residentBytes, scripted, socketsIn, until, workerPid,
} from './support.js';

const twenty = Array.from({ length: 20 }, (_, index) => index);

t.test('B76: kill -9 at half of a load with twenty waiters: all are told long before any deadline, the lease is closed, and the next request reloads', async (t) => {
  // Whatever else could end a wait takes a minute: who is told sooner was told of the death.
  const limits = { backoffFirstMs: 900, requestDeadlineMs: 120_000, heartbeatMissesMax: 60, grantConfirmMs: 60_000, releaseConfirmMs: 60_000, terminateGraceMs: 60_000 };
  const orchestrator = await open(t, { limits, models: { slow: scripted({ weightsBytes: 8 * MiB, loadMs: 2_000, loadSteps: 20, text: 'here' }) } });
  const loaded: number[] = [];
  let halfLoaded = (): void => undefined;
  const half = new Promise<void>((resolve) => { halfLoaded = resolve; });
  const onStage = ({ stage, progress }: { readonly stage: string; readonly progress: number | null }): void => {
    if (stage === 'loading' && progress !== null) loaded.push(progress);
    if ((loaded.at(-1) ?? 0) >= 0.5) halfLoaded();
  };
  const waiters = twenty.map(() => refusal(orchestrator.generate('slow', 'hello', { onStage }).result()));
  const dead = await until('the load to run', async () => {
    const lease = await leaseOf(orchestrator, 'slow');
    return lease?.state === 'loading' ? lease : null;
  });
  const pid = await workerPid(orchestrator, 'slow');
  await half;
  process.kill(pid, 'SIGKILL');
  const killedMs = performance.now();
  for (const error of await Promise.all(waiters)) t.match(error, { code: 'worker_exited', retryable: true, details: { how: 'SIGKILL', retryAfterMs: /^\d+$/ } });
  t.ok(performance.now() - killedMs < 10_000, `in ${(performance.now() - killedMs).toFixed(0)} ms`);
  t.ok(loaded.every((progress) => progress < 1), 'before the load had ended');
  t.notOk(lives(pid));
  await until('the bytes to be back', async () => {
    const { leases, cards } = await orchestrator.ledger();
    return leases.length === 0 && cards[0]!.returningBytes === 0 && cards[0]!.sampledUsedBytes === 0;
  });
  t.strictSame((await orchestrator.ledger()).workers, [], 'B58: nothing is started again that nobody asks for');
  const answer = await until('the back-off to pass', async () => orchestrator.generate('slow', 'hello').result().catch((error: unknown) => {
    t.equal(LeaseholdError.from(error).code, 'backing_off');
    return null;
  }));
  t.equal(answer.text, 'here');
  const { counters, leases, cards } = await orchestrator.ledger();
  t.match(counters, { spawns: 2, loads: 1 });
  t.not(leases[0]?.lease, dead.lease, 'B58: what starts anew has a lease of its own');
  t.equal(leases[0]?.device, cards[0]?.device, 'which names the card that nobody had named');
});

t.test('a worker that is lost in its load is replaced once where the model need not back off, and all who waited are served', async (t) => {
  const orchestrator = await open(t, { models: { slow: scripted({ loadMs: 0, estimateMs: 600, text: 'here' }) } });
  const waiters = twenty.map(() => orchestrator.generate('slow', 'hello').result());
  const worker = await until('the worker to be asked', async () => (await orchestrator.ledger()).processes.find(({ role, state }) => role === 'worker' && state === 'ready'));
  process.kill((await orchestrator.ledger()).workers.find(({ generation }) => generation === worker.generation)!.pid!, 'SIGKILL');
  t.ok((await Promise.all(waiters)).every(({ text }) => text === 'here'));
  t.match((await orchestrator.ledger()).counters, { spawns: 2, loads: 1 }, 'one worker in place of the dead one, and one load for all');
});

t.test('a worker lost in the middle of an answer: the caller gets the last words, and no second answer', async (t) => {
  const orchestrator = await open(t, {
    models: {
      breaks: scripted({ text: 'one two three four', tokensPerSecond: 200, faults: [{ at: 'generate', how: 'uncaught', afterTokens: 2, message: 'the engine broke its heart' }] }),
      steady: scripted({ text: 'word '.repeat(400), tokensPerSecond: 50 }),
    },
  });
  const said: string[] = [];
  const broken = await refusal((async (): Promise<void> => { for await (const { text } of orchestrator.generate('breaks', 'hello')) said.push(text); })());
  t.match(broken, { code: 'worker_exited', details: { how: 'exit code 70', lastLines: /the engine broke its heart/, tokensReceived: /^[12]$/ } });
  t.ok(said.length > 0);
  t.equal((await orchestrator.ledger()).counters['spawns'], 1, 'it was not tried again: a token had been sent');

  const stream = orchestrator.generate('steady', 'hello')[Symbol.asyncIterator]();
  await stream.next();
  process.kill(await workerPid(orchestrator, 'steady'), 'SIGKILL');
  const killed = await refusal((async (): Promise<void> => { while ((await stream.next()).done !== true); })());
  t.match(killed, { code: 'worker_exited', details: { how: 'SIGKILL' }, help: /no token had been sent/ });
});

t.test('a worker lost before the first token: the call is placed anew, once, and answered', async (t) => {
  const orchestrator = await open(t, { models: { ponders: scripted({ prefillMs: 700, text: 'at last' }) } });
  await orchestrator.load('ponders');
  const call = orchestrator.generate('ponders', 'hello').result();
  await until('the call to be inside', async () => ((await leaseOf(orchestrator, 'ponders'))?.inFlight ?? 0) > 0);
  process.kill(await workerPid(orchestrator, 'ponders'), 'SIGKILL');
  t.match(await call, { text: 'at last' });
  t.equal((await orchestrator.ledger()).counters['spawns'], 2);
});

/** Half a second of silence is an end. */
const impatient: Partial<Limits> = { heartbeatIntervalMs: 50, heartbeatMissesMax: 12, stallToleranceMs: 300, residencyFlushMs: 300, terminateGraceMs: 300 };

t.test('SIGSTOP: a worker that falls silent is ended though it cannot hear it, its leases return, and the call that waited for it is served', async (t) => {
  const orchestrator = await open(t, { limits: impatient, models: { sleepy: scripted({ weightsBytes: 40 * MiB, text: 'awake' }), other: scripted({ weightsBytes: 40 * MiB, text: 'other' }), talks: scripted({ text: 'word ', textTimes: 10_000, tokensPerSecond: 50 }) } });
  await orchestrator.load('sleepy');
  const pid = await workerPid(orchestrator, 'sleepy');
  process.kill(pid, 'SIGSTOP');
  const [same, next] = await Promise.all([orchestrator.generate('sleepy', 'hello').result(), orchestrator.generate('other', 'hello').result()]);
  t.strictSame([same.text, next.text], ['awake', 'other']);
  t.notOk(lives(pid));
  const streaming = orchestrator.generate('talks', 'hello')[Symbol.asyncIterator]();
  await streaming.next();
  process.kill(await workerPid(orchestrator, 'talks'), 'SIGSTOP');
  const cut = await refusal((async (): Promise<void> => { while ((await streaming.next()).done !== true); })());
  t.match(cut, { code: 'worker_silent', message: /^Worker \S+ was silent for 600 ms and has been ended\.$/, details: { silentMs: '600' } }, 'how its process then ended is not why');
  const { counters, simulatedCards } = await orchestrator.ledger();
  t.ok(counters['terminations.silent']! >= 1);
  t.equal(simulatedCards[0]?.oomRefusals, 0);
});

t.test('R274: a compute that takes longer than any silence may is not ended while its heartbeats come, and is when they stop', async (t) => {
  const compute = { prefillMs: 2_000, prefillLogLines: 200 };
  const orchestrator = await open(t, {
    limits: impatient,
    models: { long: scripted({ ...compute, text: 'worth it' }), stuck: scripted({ text: 'word and word', tokensPerSecond: 100, faults: [{ at: 'generate', how: 'busy', afterTokens: 2 }] }) },
  });
  t.equal((await orchestrator.generate('long', 'hello').result()).text, 'worth it');
  t.match((await orchestrator.ledger()).counters, { spawns: 1 });
  t.notOk((await orchestrator.ledger()).counters['terminations.silent']);
  t.match(await refusal(orchestrator.generate('stuck', 'hello').result()), { code: 'worker_silent', details: { how: 'SIGKILL' } });
  t.match((await orchestrator.ledger()).counters, { 'terminations.silent': 1 });
});

t.test('R293: a worker that stood still and goes on is named, with for how long, and is not ended', async (t) => {
  const orchestrator = await open(t, { limits: { heartbeatIntervalMs: 50, heartbeatMissesMax: 600, stallToleranceMs: 500 }, models: { still: scripted({ text: 'still here' }) } });
  const told = new Set<unknown>();
  const hear = (async (): Promise<void> => { for await (const { name, data } of orchestrator.events()) if (name === 'loop_blocked') told.add(data['generation']); })();
  await orchestrator.load('still');
  const pid = await workerPid(orchestrator, 'still');
  process.kill(pid, 'SIGSTOP');
  await pause(1_500);
  process.kill(pid, 'SIGCONT');
  const generation = await until('the ledger to show it', async () => {
    const [worker] = (await orchestrator.ledger()).workers;
    return (worker?.loopBlocked?.blockedMs ?? 0) >= 1_400 ? worker?.generation : null;
  });
  await until('it to be told', () => told.has(generation));
  t.equal((await orchestrator.generate('still', 'hello').result()).text, 'still here');
  t.match((await orchestrator.ledger()).counters, { spawns: 1 });
  await orchestrator.close();
  await hear;
});

t.test('B94: a flood of output neither blocks a worker nor breaks those who hear how it ended', async (t) => {
  const orchestrator = await open(t, {
    engines: engine({ outputBytes: 2 * MiB, outputLineBytes: 300_000 }),
    models: { loud: scripted({ faults: [{ at: 'generate', how: 'exit', exitCode: 9 }] }), fine: scripted({ text: 'fine' }) },
  });
  await orchestrator.load('loud');
  const error = await refusal(orchestrator.generate('loud', 'hello').result());
  t.match(error, { code: 'worker_exited', details: { how: 'exit code 9', lastLines: /^x{1000,}/ } });
  t.ok(error.message.length < 10_000);
  t.match(await orchestrator.generate('fine', 'hello').result(), { text: 'fine' }, 'the session that heard of it lives on');
});

t.test('R276: impostors on the control socket cost the genuine worker nothing', async (t) => {
  const orchestrator = await open(t, { engines: engine({ startMs: 800 }), models: { genuine: scripted({ text: 'it is me' }) } });
  const before = residentBytes();
  const asked = orchestrator.generate('genuine', 'hello').result();
  const generation = await until('the worker to be started', async () => (await orchestrator.ledger()).workers[0]?.generation);
  const path = orchestrator.socketPath;
  const silent = await Promise.all(Array.from({ length: defaultLimits.preAuthConnectionsMax + 5 }, () => rawPeer(path)));
  const garbage = await rawPeer(path);
  garbage.socket.write(Buffer.from('GET / HTTP/1.1\r\nHost: leasehold\r\n\r\n'));
  const greedy = await rawPeer(path);
  greedy.socket.write(Buffer.from([0x06, 0x40, 0, 0]));
  for (const proof of ['0'.repeat(64), createHmac('sha256', 'guessed').update(`spawn:${generation}`).digest('hex')]) {
    const channel = openChannel(await connect({ path, timeoutMs: 5_000 }), { plane: 'control', side: 'worker', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
    const refused = await refusal(channel.request({ type: 'hello', protocol: 1, role: 'worker', spawn: generation, proof, pid: process.pid, name: 'impostor', resume: null }, { timeoutMs: 5_000 }));
    t.equal(refused.code, 'hello_refused');
  }
  await Promise.all([garbage.closed, greedy.closed]);
  t.match(greedy.received().toString('latin1'), /frame_too_large/);
  t.match(await asked, { text: 'it is me' });
  t.ok(residentBytes() - before < 100 * MiB, 'memory stays bounded');
  const dataSocket = `${path.slice(0, path.lastIndexOf('/'))}/${generation}.sock`;
  const stranger = await rawPeer(dataSocket);
  stranger.socket.write(Buffer.from([0x06, 0x40, 0, 0]));
  await stranger.closed;
  t.match(await orchestrator.generate('genuine', 'hello').result(), { text: 'it is me' }, 'nor on its own socket');
  for (const { socket } of silent) socket.destroy();
});

t.test('fifty workers started and stopped leave no process, no descriptor and no socket', async (t) => {
  const names = Array.from({ length: 10 }, (_, index) => `model${String(index)}`);
  const stateFolder = folder(t);
  const orchestrator = await open(t, {
    stateFolder, limits: { workerIdleMs: 50 }, models: Object.fromEntries(names.map((name, index) => [name, scripted({ weightsBytes: MiB + index })])),
  });
  const { bootId } = await orchestrator.ledger();
  const round = async (): Promise<void> => {
    await Promise.all(names.map((name) => orchestrator.load(name)));
    await Promise.all(names.map((name) => orchestrator.evict(name)));
    await until('all to have ended', async () => (await orchestrator.ledger()).workers.length === 0);
  };
  await round();
  const files = openFiles();
  for (let rounds = 1; rounds < 5; rounds++) await round();
  t.equal((await orchestrator.ledger()).counters['spawns'], 50);
  await until('their descriptors to be closed', () => openFiles() <= files);
  t.strictSame(carriers(bootId), []);
  t.strictSame(socketsIn(stateFolder), ['broker.sock']);
  t.match(await orchestrator.ledger(), { leases: [], cards: [{ leasedBytes: 0, floorBytes: 0, sampledUsedBytes: 0 }] });
});

t.test('SIGTERM that is ignored, a busy loop and grandchildren of their own sessions: close ends them all', async (t) => {
  const orchestrator = await open(t, {
    engines: engine({ ignoreSigterm: true, grandchildren: 2, grandchildrenDetached: true }),
    models: { stubborn: scripted({ faults: [{ at: 'unload', how: 'busy' }] }) },
  });
  await orchestrator.load('stubborn');
  const { bootId } = await orchestrator.ledger();
  t.ok(carriers(bootId).length >= 3, 'the worker and what it started');
  await orchestrator.close();
  t.strictSame(carriers(bootId), []);
});
