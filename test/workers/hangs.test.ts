/** An engine that hangs in a process which still sends heartbeats: it costs itself, and the others are served. Real processes, the real broker, the library. */
import t, { type Test } from 'tap';
import { defaultLimits } from '../../protocol/index.js';
import type { FaultPoint } from '../../workers/simulated/script.js';
import type { LeaseholdEvent, Orchestrator, OrchestratorOptions } from '../../src/orchestrator/index.js';
import { MiB, engine, keyOf, open, refusal, scripted, until } from '../integration/support.js';
import { ask, begun, codeOf, model, read, readOn, rig, turns } from './in-process.js';

/** Nothing but the engine's own bounds ends anything here within the time of a test. */
const limits = { heartbeatIntervalMs: 200, stopTimeoutMs: 400, moveTimeoutMs: 1_500, cancelWithinMs: 100, drainTimeoutMs: 10_000 };
const fits = { weightsBytes: 4 * MiB, contextBytesPerToken: 0 };
const good = scripted({ ...fits, text: 'good' });

const hangs = (at: FaultPoint, more: Readonly<Record<string, unknown>> = {}): ReturnType<typeof scripted> => scripted({ ...fits, ...more, faults: [{ at, how: 'hang' }] });

interface Scene {
  readonly orchestrator: Orchestrator;
  /** How each process ended so far. */
  readonly ends: () => string[];
  /** `good` is answered, and nothing of the hung model is left on the card. */
  readonly served: () => Promise<void>;
}

/** Room for one model on the card. */
async function scene(t: Test, options: OrchestratorOptions): Promise<Scene> {
  let listening = Promise.resolve();
  // Before the one that closes it, which is carried out first.
  t.teardown(() => listening);
  const orchestrator = await open(t, { devices: ['sim:6MiB'], engines: engine({}, 1), ...options, limits: { ...limits, ...options.limits } });
  const events: LeaseholdEvent[] = [];
  listening = (async () => { for await (const event of orchestrator.events()) events.push(event); })();
  return {
    orchestrator,
    ends: () => events.filter(({ name }) => name === 'process_ended').map(({ data }) => String(data['how'])),
    served: async () => {
      t.equal((await orchestrator.generate('good', 'x').result()).text, 'good');
      const { leases } = await orchestrator.ledger();
      t.strictSame(leases.map(({ state, inFlight }) => [state, inFlight]), [['resident', 0]]);
      t.equal(leases[0]?.model, keyOf(orchestrator, 'good'));
    },
  };
}

// They wait for the most part: beside each other they take little longer than the longest.
t.jobs = 4;

t.test('a hung generation ends its process, once its caller has been answered; a neighbour without a token yet is asked again', async (t) => {
  const slow = scripted({ ...fits, prefillMs: 2_500, text: 'slow' });
  const { orchestrator, ends } = await scene(t, { devices: ['sim:11MiB'], engines: engine({}, 2), models: { good, slow, bad: hangs('generate') } });
  await orchestrator.load('slow');
  await orchestrator.load('bad');
  t.equal((await orchestrator.ledger()).workers.length, 1, 'both in one process');
  const neighbour = orchestrator.generate('slow', 'x').result();
  t.equal((await refusal(orchestrator.generate('bad', 'x', { deadlineMs: 700 }).result())).code, 'deadline_passed');
  t.strictSame(ends(), [], 'answered before');
  t.equal((await neighbour).text, 'slow');
  await until('the news of the end', () => ends().length > 0);
  t.strictSame(ends(), ['exit code 71']);
  const { leases, counters } = await orchestrator.ledger();
  t.strictSame(leases.length, 1, 'the hung model holds nothing');
  t.match(counters, { 'exits.engine_hung': 1 }, 'counted as what it was');
  t.notOk(counters['terminations.silent'], 'it never was silent');
  t.equal((await orchestrator.generate('good', 'x').result()).text, 'good');
});

t.test('a hung generation alone on its card: honest models are served after it', async (t) => {
  const { orchestrator, served } = await scene(t, { models: { good, bad: hangs('generate') } });
  await orchestrator.load('bad');
  t.equal((await refusal(orchestrator.generate('bad', 'x', { deadlineMs: 1_000 }).result())).code, 'deadline_passed');
  await served();
});

t.test('a generation that hangs after its first token loses its call by silentStreamMs, and the card is free for others', async (t) => {
  const { orchestrator, ends, served } = await scene(t, {
    models: { good, bad: scripted({ ...fits, text: 'one two', faults: [{ at: 'generate', how: 'hang', afterTokens: 1 }] }) }, limits: { silentStreamMs: 500 },
  });
  const error = await refusal(orchestrator.generate('bad', 'x').result());
  t.match(error, { code: 'generation_failed', message: /no further token for 500 ms \(limits.silentStreamMs\)/, details: { tokensReceived: '1' } });
  await served();
  t.strictSame(ends(), ['exit code 71'], 'the engine did not stop either');
});

t.test('a hung load nobody stopped ends by loadTimeoutMs, and then honest models are served', async (t) => {
  const { orchestrator, served } = await scene(t, { models: { good, bad: hangs('load') }, limits: { grantConfirmMs: 500, loadTimeoutMs: 1_500 } });
  t.equal((await refusal(orchestrator.generate('bad', 'x', { deadlineMs: 500 }).result())).code, 'deadline_passed');
  await served();
});

t.test('a hung load is ended by an evict long before loadTimeoutMs, though a call waits for it', async (t) => {
  const { orchestrator, ends, served } = await scene(t, { models: { good, bad: hangs('load') } });
  const waiting = refusal(orchestrator.generate('bad', 'x', { deadlineMs: 60_000 }).result());
  await until('the load', async () => (await orchestrator.ledger()).leases[0]?.state === 'loading');
  t.equal(await orchestrator.evict('bad'), 0);
  await until('the news of the end', () => ends().length > 0);
  t.strictSame(ends(), ['exit code 71'], 'it gave itself up');
  t.equal((await waiting).code, 'worker_exited');
  await served();
});

t.test('a slow load that goes on beyond moveTimeoutMs is stopped by an evict and costs no process; who waited for it has it loaded again', async (t) => {
  const slow = scripted({ ...fits, loadMs: 4_000, text: 'slow' });
  const { orchestrator, ends } = await scene(t, { models: { good, slow } });
  const waiting = orchestrator.generate('slow', 'x', { deadlineMs: 60_000 }).result();
  await until('the load', async () => (await orchestrator.ledger()).leases[0]?.state === 'loading');
  const first = (await orchestrator.ledger()).leases[0]?.lease;
  await orchestrator.evict('slow');
  t.equal((await waiting).text, 'slow');
  const [again] = (await orchestrator.ledger()).leases;
  t.equal(again?.state, 'resident');
  t.not(again?.lease, first, 'under a lease of its own');
  t.strictSame(ends(), []);
});

t.test('a hung park ends its process, and the one that the room was for is served', async (t) => {
  const { orchestrator, ends, served } = await scene(t, { models: { good, bad: hangs('park', { parkable: true, text: 'bad' }) } });
  t.equal((await orchestrator.generate('bad', 'x').result()).text, 'bad');
  await served();
  await until('the news of the end', () => ends().length > 0);
  t.equal(ends().length, 1);
});

t.test('a hung return to the card ends its process, and honest models are served', async (t) => {
  const { orchestrator, ends } = await scene(t, { models: { good, bad: hangs('resume', { parkable: true, text: 'bad' }) } });
  t.equal((await orchestrator.generate('bad', 'x').result()).text, 'bad');
  t.equal((await orchestrator.generate('good', 'x').result()).text, 'good');
  const back = refusal(orchestrator.generate('bad', 'x', { deadlineMs: 2_000 }).result());
  t.ok(['deadline_passed', 'worker_exited'].includes((await back).code));
  await until('the news of the end', () => ends().length > 0);
  t.strictSame(ends(), ['exit code 71']);
  t.equal((await orchestrator.generate('good', 'x').result()).text, 'good');
});

t.test('parkable models that take turns on one card never lose a call to a lease that is on its way back', async (t) => {
  const turn = (name: string): ReturnType<typeof scripted> => scripted({ ...fits, parkable: true, text: name });
  const { orchestrator } = await scene(t, { models: { a: turn('a'), b: turn('b') } });
  const answered: string[] = [];
  for (let call = 0; call < 100; call++) answered.push(...await Promise.all(['a', 'b'].map(async (name) => (await orchestrator.generate(name, 'x').result()).text)));
  t.equal(answered.join(''), 'ab'.repeat(100));
});

t.test('in the worker', async (t) => {
  t.jobs = 4;
  const bounds = { ...defaultLimits, ...limits };

  t.test('a reader that holds a stream is no silent engine, and an engine that goes on in time is none', async (t) => {
    const { caller, fatal, close } = await rig(t, { limits: { ...bounds, creditTokensMax: 16, silentStreamMs: 1_000 } });
    const one = await caller();
    const long = model({}, { contextTokens: 8_192 });
    const held = await begun(one.generate(ask(long, 'abcdefgh'.repeat(300))));
    const slow = model({ text: 'a b c d', tokensPerSecond: 3 }, { key: 'slow' });
    t.match(await read(one.generate(ask(slow))), { text: 'a b c d' }, 'by then the held one has been held for longer');
    await readOn(held);
    t.strictSame(fatal, []);
    await close();
  });

  t.test('what was told to stop and stops in time costs nothing; what does not is fatal, once', async (t) => {
    const { attached, caller, fatal, abandon } = await rig(t, { limits: bounds });
    const one = await caller();
    const endless = model({ text: 'xxxx', textTimes: 10_000, tokensPerSecond: 500 }, { key: 'endless', contextTokens: 20_000 });
    const open = await begun(one.generate(ask(endless)));
    await open.return?.();
    while (attached.worker.inFlight > 0) await turns(1);
    const hung = model({ faults: [{ at: 'generate', how: 'hang' }] }, { key: 'hung' });
    await one.load(hung);
    t.equal(await codeOf(read(one.generate(ask(hung, 'x', { deadlineMs: 1_000 })))), 'deadline_passed');
    await until('the bound', () => fatal.length > 0);
    t.match(fatal, [{ code: 'engine_hung', details: { what: /generate with hung/, limit: 'stopTimeoutMs', limitMs: '400' } }]);
    await abandon();
  });

  t.test('a load that is told to stop and does not is fatal after stopTimeoutMs, and the command is answered; before that it may take its time', async (t) => {
    const { broker, caller, fatal, abandon } = await rig(t, { limits: bounds });
    const one = await caller();
    t.equal(await codeOf(one.load(model({ faults: [{ at: 'load', how: 'hang' }] }), { deadlineMs: 1_000 })), 'deadline_passed');
    t.strictSame(fatal, [], 'nobody has stopped it');
    t.match(await broker.move().answer, { type: 'failed', code: 'move_failed' });
    await until('the bound', () => fatal.length > 0);
    t.match(fatal, [{ code: 'engine_hung', details: { what: 'Loading m', limit: 'stopTimeoutMs' } }]);
    await abandon();
  });

  for (const at of ['estimate', 'context', 'unload'] as const) {
    t.test(`a hung ${at} is fatal after moveTimeoutMs, and a command that waits for it is answered`, async (t) => {
      const { broker, caller, fatal, abandon } = await rig(t, { limits: bounds });
      const one = await caller();
      const spec = model({ faults: [{ at, how: 'hang' }] });
      const loading = codeOf(one.load(spec));
      if (at === 'unload') {
        t.equal(await loading, null);
        const first = broker.move({ when: 'now' });
        await until('it to begin', () => first.interim.length > 0);
        const second = broker.move({ when: 'now' });
        t.match([await second.answer, await first.answer], [{ type: 'failed', code: 'move_failed' }, { type: 'failed', code: 'move_failed' }], 'not busy: no call is what keeps it');
      }
      await until('the bound', () => fatal.length > 0);
      t.match(fatal, [{ code: 'engine_hung', details: { limit: 'moveTimeoutMs' } }]);
      await abandon();
    });
  }
});
