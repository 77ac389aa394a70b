/** Workers that lie, take too much, hang and fail on a card that reads the truth: what they say frees nothing, and nobody runs out of memory for it. */
import t, { type Test } from 'tap';
import type { LeaseholdError } from '../../protocol/index.js';
import type { ModelOptions, Orchestrator } from '../../src/orchestrator/index.js';
import { MiB, card, leaseOf, open, refusal, scripted, until, workerPid } from './support.js';

/** Whatever was said, the card never refused anybody and was never promised twice. */
async function neverOverdrawn(t: Test, orchestrator: Orchestrator): Promise<void> {
  const { counters } = await orchestrator.ledger();
  t.equal((await card(orchestrator)).oomRefusals, 0);
  t.ok(counters['maxOverReserveBytes']! <= 0);
}

/** Verdicts of the explain log, newest first. */
async function verdicts(orchestrator: Orchestrator): Promise<readonly string[]> {
  return (await orchestrator.explain(undefined, 200)).map(({ verdict, text }) => `${verdict}: ${text}`);
}

t.test('R266: of two that come at the same moment with room for one, one is granted and the other makes room for itself', async (t) => {
  const orchestrator = await open(t, { models: { one: scripted({ weightsBytes: 40 * MiB, text: 'one' }), two: scripted({ weightsBytes: 41 * MiB, text: 'two' }) } });
  const answers = await Promise.all(['one', 'two'].map((name) => orchestrator.generate(name, 'hello').result()));
  t.strictSame(answers.map(({ text }) => text), ['one', 'two']);
  t.match((await orchestrator.ledger()).counters, { grants: 2, evictions: 1 });
  await neverOverdrawn(t, orchestrator);
});

t.test('R267: two models that evict each other round after round: every call is answered, none waits for ever, and neither is evicted under a call', async (t) => {
  const orchestrator = await open(t, { models: { one: scripted({ weightsBytes: 40 * MiB, text: 'one' }), two: scripted({ weightsBytes: 41 * MiB, text: 'two' }) } });
  const round = async (name: string): Promise<void> => {
    for (let call = 0; call < 15; call++) t.equal((await orchestrator.generate(name, 'hello').result()).text, name);
  };
  await Promise.all(['one', 'two', 'one', 'two'].map(round));
  t.ok((await orchestrator.ledger()).counters['evictions']! >= 2);
  await neverOverdrawn(t, orchestrator);
});

t.test('R270 B41: a worker that says it has unloaded and keeps half: the rest is charged as its residue, it is ended, and the requester is granted what is there', async (t) => {
  const orchestrator = await open(t, { models: { liar: scripted({ weightsBytes: 40 * MiB, unloadKeepsFraction: 0.5 }), next: scripted({ weightsBytes: 40 * MiB, text: 'room at last' }) } });
  await orchestrator.load('liar');
  const pid = await workerPid(orchestrator, 'liar');
  const answer = await orchestrator.generate('next', 'hello').result();
  t.equal(answer.text, 'room at last');
  t.ok((await verdicts(orchestrator)).some((text) => /^escalated: .*still there/.test(text)), 'seen, and said');
  t.not(await workerPid(orchestrator, 'next'), pid);
  await neverOverdrawn(t, orchestrator);
});

t.test('a worker that takes more than its lease: what the card reads counts, and the next model evicts it instead of running into it', async (t) => {
  const orchestrator = await open(t, { models: { greedy: scripted({ weightsBytes: 10 * MiB, overAllocateBytes: 30 * MiB }), next: scripted({ weightsBytes: 30 * MiB, text: 'fits' }) } });
  await orchestrator.load('greedy');
  await until('the card to be read', async () => (await card(orchestrator)).sampledUsedBytes! >= 40 * MiB);
  t.equal((await orchestrator.generate('next', 'hello').result()).text, 'fits');
  t.equal(await leaseOf(orchestrator, 'greedy'), null);
  await neverOverdrawn(t, orchestrator);
});

t.test('R268: a victim that frees short is asked for all, then the next goes; what counts as freed is what the card shows', async (t) => {
  const short = (mib: number): ReturnType<typeof scripted> => scripted({ weightsBytes: mib * MiB, partial: true, partFreesFraction: 0.25 });
  const orchestrator = await open(t, { models: { first: short(20), second: short(21), next: scripted({ weightsBytes: 24 * MiB, text: 'in' }) } });
  await orchestrator.load('first');
  await orchestrator.load('second');
  t.equal((await orchestrator.generate('next', 'hello').result()).text, 'in');
  const { cards, leases } = await orchestrator.ledger();
  const residentBytes = leases.reduce((sum, lease) => sum + lease.residentBytes, 0);
  await until('the ledger to agree with the card', async () => {
    const { usedBytes } = await card(orchestrator);
    return Math.abs(usedBytes - residentBytes) <= 64 * 1024;
  });
  t.ok(cards[0]!.availableBytes! >= 0);
  await neverOverdrawn(t, orchestrator);
});

t.test('a worker that hangs in its unload, and one whose loop is stuck, are ended; their bytes go to who waits', async (t) => {
  for (const how of ['hang', 'busy'] as const) {
    const orchestrator = await open(t, {
      limits: { moveTimeoutMs: 1_000, commandAnswerMs: 500, terminateGraceMs: 300 },
      models: { stuck: scripted({ weightsBytes: 40 * MiB, faults: [{ at: 'unload', how }] }), next: scripted({ weightsBytes: 40 * MiB, text: how }) },
    });
    await orchestrator.load('stuck');
    t.equal((await orchestrator.generate('next', 'hello').result()).text, how);
    t.equal(await leaseOf(orchestrator, 'stuck'), null);
    await neverOverdrawn(t, orchestrator);
  }
});

t.test('B38: bytes that come back late are waited for, and nobody is started into them', async (t) => {
  const orchestrator = await open(t, { devices: ['sim:64MiB,lag=1500ms'], limits: { releaseConfirmMs: 5_000 }, models: { gone: scripted({ weightsBytes: 50 * MiB }), next: scripted({ weightsBytes: 50 * MiB, text: 'after it' }) } });
  await orchestrator.load('gone');
  process.kill(await workerPid(orchestrator, 'gone'), 'SIGKILL');
  await until('the end to be known', async () => (await leaseOf(orchestrator, 'gone')) === null);
  t.ok((await card(orchestrator)).returningBytes > 0, 'closed at once, and not yet free');
  t.equal((await orchestrator.generate('next', 'hello').result()).text, 'after it');
  await neverOverdrawn(t, orchestrator);
});

t.test('B22, B38: an OOM inside a lease is tried once more and no oftener, and does not poison the model', async (t) => {
  const orchestrator = await open(t, {
    limits: { backoffFirstMs: 1 },
    models: {
      once: scripted({ text: 'second try', faults: [{ at: 'load', how: 'oom', times: 1 }] }),
      thrice: scripted({ text: 'fourth try', faults: [{ at: 'load', how: 'oom', times: 3 }] }),
    },
  });
  t.equal((await orchestrator.generate('once', 'hello').result()).text, 'second try');
  t.match((await orchestrator.ledger()).counters, { oomRetries: 1, loads: 1 });
  const error = await refusal(orchestrator.load('thrice'));
  t.match(error, { code: 'out_of_memory', details: { device: /^SIM-/ } });
  const answer = await until('the back-off to pass', () => orchestrator.generate('thrice', 'hello').result().catch(() => null));
  t.equal(answer.text, 'fourth try');
});

t.test('R269: a victim killed while it unloads: its bytes count once its end is confirmed, and its successor of the same name is not mistaken for it', async (t) => {
  const orchestrator = await open(t, { models: { victim: scripted({ weightsBytes: 40 * MiB, unloadMs: 10_000, text: 'anew' }), next: scripted({ weightsBytes: 40 * MiB, text: 'in' }) } });
  await orchestrator.load('victim');
  const pid = await workerPid(orchestrator, 'victim');
  const waiting = orchestrator.generate('next', 'hello').result();
  const evicting = orchestrator.evict('victim');
  await until('the unload to run', async () => (await orchestrator.explain('victim', 20)).some(({ verdict }) => verdict === 'evicting'));
  process.kill(pid, 'SIGKILL');
  t.equal((await waiting).text, 'in');
  t.ok(await evicting >= 40 * MiB);
  t.equal((await orchestrator.generate('victim', 'hello').result()).text, 'anew');
  t.not(await workerPid(orchestrator, 'victim'), pid);
  await neverOverdrawn(t, orchestrator);
});

t.test('B79: a load that always fails backs off, each refusal at once and with the time to come again, and its neighbour makes room once and not again', async (t) => {
  const orchestrator = await open(t, {
    limits: { backoffFirstMs: 300 },
    models: { broken: scripted({ weightsBytes: 40 * MiB, loadMs: 20, faults: [{ at: 'load', how: 'throw', message: 'bad magic', afterFraction: 0.5 }] }), neighbour: scripted({ weightsBytes: 40 * MiB, text: 'in' }) },
  });
  await orchestrator.load('neighbour');
  const startedMs = performance.now();
  const refusals: LeaseholdError[] = [];
  await until('the third attempt', async () => {
    refusals.push(await refusal(orchestrator.load('broken')));
    return refusals.filter(({ code }) => code === 'load_failed').length === 3;
  });
  t.equal(refusals[0]?.code, 'load_failed');
  t.ok(performance.now() - startedMs >= 900, 'the second pause is twice the first');
  const between = refusals.filter(({ code }) => code === 'backing_off');
  t.equal(between.length, refusals.length - 3);
  t.ok(between.every(({ message, details }) => /bad magic/.test(message) && Number(details['retryAfterMs']) <= 10_000), 'why, and when to come again');
  t.match((await orchestrator.ledger()).counters, { evictions: 1, loadFailures: 3 });
  t.equal((await orchestrator.generate('neighbour', 'hello').result()).text, 'in', 'somebody asks for the neighbour again');
  const spared = await until('the pause to pass', async () => {
    const error = await refusal(orchestrator.load('broken'));
    return /neighbour has been used since/.test(error.message) ? error : null;
  });
  t.equal(spared.code, 'backing_off');
  t.ok(Number(spared.details['retryAfterMs']) > 10_000, 'later than its pause');
  t.match((await orchestrator.ledger()).counters, { evictions: 1, loadFailures: 3 }, 'it is not evicted again');
  await orchestrator.evict('neighbour');
  t.equal((await refusal(orchestrator.load('broken'))).code, 'load_failed', 'what is free it may take');
});

t.test('a model that fits the empty card only without the headroom is loaded from a cold start, alone, when its size is declared and it is marked exclusive', async (t) => {
  const whole = (options: Partial<ModelOptions>): ModelOptions => scripted({ weightsBytes: 23 * MiB - 16 * 1_024, contextBytesPerToken: 1, text: 'all of it' }, options);
  const orchestrator = await open(t, {
    devices: ['sim:24MiB'],
    models: {
      unmarked: whole({ declaredBytes: 23 * MiB }), estimated: whole({ exclusive: true }), whole: whole({ declaredBytes: 23 * MiB, exclusive: true }),
      small: scripted({ weightsBytes: 4 * MiB, text: 'small' }),
    },
  });
  t.equal((await refusal(orchestrator.load('unmarked'))).code, 'never_fits');
  t.equal((await refusal(orchestrator.load('estimated'))).code, 'never_fits', 'an estimate is not believed so far');
  t.ok((await verdicts(orchestrator)).some((text) => /marked `exclusive`, which is believed of a size that is declared/.test(text)), 'and what to do is told');
  await orchestrator.load('small');
  t.equal((await orchestrator.generate('whole', 'hello').result()).text, 'all of it');
  t.equal(await leaseOf(orchestrator, 'small'), null, 'nothing stays beside it');
  t.match(await leaseOf(orchestrator, 'whole'), { chargedBytes: 23 * MiB - 15 * 1_024 }, 'what it was measured to take, its context included');
  t.ok((await verdicts(orchestrator)).some((text) => /without headroom \(exclusive\)/.test(text)));
  t.equal((await orchestrator.generate('small', 'hello').result()).text, 'small', 'and it gives way like any other');
  await neverOverdrawn(t, orchestrator);
});

t.test('R41: everything is unloaded at once, workers’ models and holders’ leases alike; who is pinned or in use stays and is told with why', async (t) => {
  const orchestrator = await open(t, {
    models: {
      idle: scripted({ weightsBytes: 4 * MiB }), kept: scripted({ weightsBytes: 5 * MiB }, { pinned: true }),
      busy: scripted({ weightsBytes: 4 * MiB, textTimes: 50_000, text: 'la ', tokensPerSecond: 100, contextBytesPerToken: 0 }, { contextTokens: 200_000 }),
    },
  });
  for (const name of ['idle', 'kept', 'busy']) await orchestrator.load(name);
  const held = await orchestrator.lease({ model: 'of the app', bytes: 4 * MiB, onEvict: () => ({ residentBytes: 0 }) });
  const stop = new AbortController();
  const streaming = refusal(orchestrator.generate('busy', 'on and on', { signal: stop.signal, maxTokens: 100_000 }).result());
  await until('the stream to run', async () => (await leaseOf(orchestrator, 'busy'))?.inFlight === 1);
  const all = await orchestrator.evictAll({ deadlineMs: 2_000 });
  t.strictSame(all.map(({ model, stayed }) => [model, stayed?.code ?? null]).sort(), [['busy', 'deadline_passed'], ['idle', null], ['kept', 'pinned'], ['of the app', null]]);
  t.match(all.find(({ model }) => model === 'kept')?.stayed?.message, /kept/);
  t.ok(all.filter(({ stayed }) => stayed === null).every(({ freedBytes }) => freedBytes >= 4 * MiB), 'as measured');
  t.equal(held.held, false);
  t.strictSame((await orchestrator.ledger()).leases.map(({ name }) => name).sort(), ['busy', 'kept']);
  stop.abort();
  t.equal((await streaming).code, 'request_cancelled', 'no call was cut before its caller left');
  await orchestrator.pin('kept', false);
  t.ok((await orchestrator.evictAll()).every(({ stayed }) => stayed === null));
  t.strictSame((await orchestrator.ledger()).leases, [], 'nothing is left');
  t.strictSame(await orchestrator.evictAll(), []);
});
