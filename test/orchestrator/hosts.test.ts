/** Host applications as processes: one owns the broker, others attach; they block, close, crash, and leave nothing. */
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import t from 'tap';
import { startHost, type Host } from '../integration/host-process.js';
import { MiB, carriers, eager, engine, folder, keyOf, lives, open, quick, refusal, scripted, socketsIn, until, workerPid } from '../integration/support.js';
import { defaultLimits, type LeaseholdError } from '../../protocol/index.js';
import { createOrchestrator, type BrokerChange, type LedgerState, type OrchestratorOptions } from '../../src/orchestrator/index.js';

const talks = scripted({ weightsBytes: 4 * MiB, text: 'word ', textTimes: 400, tokenCharacters: 5, tokensPerSecond: 100 });

function given(stateFolder: string, options: OrchestratorOptions = {}): OrchestratorOptions {
  return { stateFolder, devices: ['sim:64MiB'], broker: 'own', classPolicies: eager, limits: quick, models: { talks, brief: scripted({ text: 'brief' }) }, ...options };
}

async function ledgerOf(host: Host): Promise<LedgerState> {
  host.tell('ledger');
  return (await host.hear('ledger'))['ledger'] as LedgerState;
}

/** What each descriptor of a process leads to. One that closes meanwhile leads nowhere. */
function openedBy(pid: number): readonly string[] {
  const folder = `/proc/${String(pid)}/fd`;
  return readdirSync(folder).flatMap((fd) => {
    try {
      return [readlinkSync(`${folder}/${fd}`)];
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  });
}

t.test('a host that has closed ends by itself: no timer, socket or child holds it', async (t) => {
  const stateFolder = folder(t);
  const host = startHost(t, given(stateFolder));
  const { bootId } = await host.hear('up');
  host.tell('ask', 'brief', 'hello');
  t.match(await host.hear('answered'), { text: 'brief' });
  host.tell('lease', String(MiB));
  await host.hear('leased');
  host.tell('close');
  await host.hear('closed');
  t.equal(await host.exited, 0);
  t.strictSame([carriers(String(bootId)), socketsIn(stateFolder)], [[], []]);
});

t.test('B85: kill -9 of a worker: its two grandchildren end with it within five seconds, and its host lives on', async (t) => {
  const host = startHost(t, given(folder(t), { engines: engine({ grandchildren: 2, grandchildrenDetached: true, ignoreSigterm: true }) }));
  const { bootId } = await host.hear('up');
  const before = new Set(carriers(String(bootId)));
  host.tell('stream', 'talks');
  await host.hear('streaming');
  const [worker] = (await ledgerOf(host)).workers;
  const family = carriers(String(bootId)).filter((pid) => !before.has(pid) && pid !== worker?.pid);
  t.ok(family.length >= 2, 'what it started');
  process.kill(worker?.pid ?? 0, 'SIGKILL');
  const diedMs = performance.now();
  await until('what it started to be gone', () => !family.some(lives));
  t.ok(performance.now() - diedMs < 5_000);
  t.ok(lives(host.pid));
  t.match(await host.hear('failed'), { word: 'stream', code: 'worker_exited' });
  host.tell('ask', 'brief', 'hello');
  t.match(await host.hear('answered'), { text: 'brief' });
});

t.test('B85: kill -9 of the host: workers and grandchildren end with it, and the next broker starts on the same folder', async (t) => {
  const stateFolder = folder(t);
  const host = startHost(t, given(stateFolder, { engines: engine({ grandchildren: 2, grandchildrenDetached: true, ignoreSigterm: true }) }));
  const { bootId } = await host.hear('up');
  host.tell('stream', 'talks');
  await host.hear('streaming');
  const family = carriers(String(bootId));
  t.ok(family.length >= 3, 'a worker and what it started');
  host.child.kill('SIGKILL');
  t.equal(await host.exited, 'SIGKILL');
  const diedMs = performance.now();
  await until('all of them to be gone', () => !family.some(lives));
  t.ok(performance.now() - diedMs < 5_000);
  t.ok(socketsIn(stateFolder).length > 0, 'what was killed has left its sockets');
  const next = await open(t, given(stateFolder));
  t.strictSame(socketsIn(stateFolder), ['broker.sock'], 'and the next owner has cleared them away');
  t.equal((await next.generate('brief', 'hello').result()).text, 'brief');
});

t.test('a crowd of callers that comes to a broker and to one worker at the same moment is served to the last', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder));
  await owner.load('brief');
  const crowd = await Promise.all(Array.from({ length: 3 * defaultLimits.preAuthConnectionsMax }, () => createOrchestrator({ stateFolder, broker: 'attach' })));
  t.teardown(() => Promise.all(crowd.map((each) => each.close())));
  const answers = await Promise.all(crowd.map((each) => each.generate('brief', 'hello').result()));
  t.ok(answers.every(({ text }) => text === 'brief'));
});

t.test('another process attaches to a broker that runs, sees its models, and leaves it as it was', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder));
  await owner.load('talks');
  const guest = startHost(t, { stateFolder, broker: 'attach' });
  t.match(await guest.hear('up'), { owns: false, brokerPid: process.pid });
  guest.tell('ask', 'brief', 'hello');
  t.match(await guest.hear('answered'), { text: 'brief' });
  t.match(await ledgerOf(guest), { counters: { spawns: 2 }, leases: [{}, {}] });
  guest.tell('lease', String(8 * MiB));
  const { lease } = await guest.hear('leased');
  t.ok((await owner.ledger()).leases.some((held) => held.lease === lease), 'D7: what it holds is in the owner’s ledger');
  guest.child.kill('SIGKILL');
  await until('its end to close its lease', async () => (await owner.ledger()).leases.every((held) => held.lease !== lease));
  const polite = startHost(t, { stateFolder });
  t.match(await polite.hear('up'), { owns: false }, 'auto attaches where there is one');
  polite.tell('close');
  t.equal(await polite.exited, 0);
  t.equal((await owner.generate('brief', 'hello').result()).text, 'brief');
});

t.test('who finds a broker with other cards than were asked for is told, once, and uses those', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder, { devices: ['sim:64MiB', 'sim:32MiB'] }));
  const told = async (options: OrchestratorOptions): Promise<string[]> => {
    const ignored: LeaseholdError[] = [];
    const guest = await createOrchestrator({ stateFolder, onIgnored: (why) => { ignored.push(why); }, ...options });
    t.strictSame([guest.ownsBroker, (await guest.ledger()).cards.length], [false, 2]);
    await guest.close();
    return ignored.map(({ message }) => message);
  };
  for (const devices of [['auto'], ['sim:32MiB'], ['sim:32MiB', 'sim:64MiB,lag=5ms']]) t.strictSame(await told({ devices }), [], devices.join());
  t.strictSame(await told({}), []);
  t.strictSame(await told({ devices: ['sim:99MiB'], broker: 'attach' }), [], 'who only attaches asks for none');
  const [message] = await told({ devices: ['sim:64MiB', 'sim:64MiB', 'cpu'] });
  t.match(message, /^devices: sim:64MiB, cpu: no card of the broker that runs already at .*broker\.sock, which owns SIM-.*-0 of 64\.0 MiB, SIM-.*-1 of 32\.0 MiB; those are used\.$/);
  const warned = new Promise<Error>((resolve) => { process.once('warning', resolve); });
  await (await createOrchestrator({ stateFolder, devices: ['GPU-00000000-0000-0000-0000-000000000000'] })).close();
  t.match(await warned, { name: 'LeaseholdWarning', code: 'config_invalid', message: /^devices: GPU-0/ });
  t.ok(owner.ownsBroker);
});

t.test('who waits for a worker when the broker is closed is told of that, and not of the worker', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder, { engines: [{ name: 'simulated', command: 'sh', args: ['-c', 'trap "exit 0" TERM; while :; do sleep 0.05; done'] }] }));
  const guest = await createOrchestrator({ stateFolder, broker: 'attach' });
  t.teardown(() => guest.close());
  const refused = refusal(guest.load('brief'));
  await until('its worker to start', async () => (await owner.ledger()).workers.length === 1);
  await owner.close();
  t.match(await refused, { code: /^(shutting_down|broker_lost)$/, message: /^(The broker is shutting down\.|The broker is gone)/ });
});

t.test('calls that find the broker just ending are served by the next, which one of their own orchestrators is', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder, { broker: 'auto' }));
  await owner.load('brief');
  const guests = await Promise.all(Array.from({ length: 3 }, () => createOrchestrator(given(stateFolder, { broker: 'auto' }))));
  t.teardown(() => Promise.all(guests.map((guest) => guest.close())));
  t.ok(guests.every(({ ownsBroker }) => !ownsBroker));
  const closing = owner.close();
  const answers = await Promise.all(guests.map((guest) => guest.generate('brief', 'hello').result()));
  t.ok(answers.every(({ text }) => text === 'brief'));
  t.equal(guests.filter(({ ownsBroker }) => ownsBroker).length, 1);
  await closing;
});

t.test('an owner that closes lets the calls of others end, and its own at once; one that is cut unseen is asked again', async (t) => {
  const stateFolder = folder(t);
  const long = scripted({ weightsBytes: 4 * MiB, text: 'on ', textTimes: 300, tokensPerSecond: 400 });
  const owner = await open(t, given(stateFolder, { broker: 'auto', models: { talks, long } }));
  const guest = await createOrchestrator(given(stateFolder, { broker: 'auto', models: { talks, long } }));
  t.teardown(() => guest.close());
  const heard = { count: 0, text: '' };
  const reading = (async (): Promise<void> => { for await (const { text } of guest.generate('long', 'hello')) { heard.count += 1; heard.text += text; } })();
  const own = refusal(owner.generate('talks', 'hello').result());
  await until('the answer to begin', () => heard.count > 2);
  await owner.close();
  t.equal((await own).code, 'closed');
  await reading;
  t.equal(heard.text, 'on '.repeat(300), 'to its last token');

  const hasty = startHost(t, given(stateFolder, { broker: 'auto', models: { talks, long }, limits: { ...quick, shutdownDrainMs: 0 } }));
  await hasty.hear('up');
  const unseen = guest.generate('talks', 'hello').result();
  await until('it to be under way', async () => (await guest.ledger()).leases.some(({ inFlight }) => inFlight > 0));
  hasty.tell('close');
  await hasty.hear('closed');
  t.equal((await unseen).text, 'word '.repeat(400), 'asked again of the next broker, since nobody had seen its beginning');
  t.ok(guest.ownsBroker);
});

t.test('a process that dies while it waits leaves no place in the queue', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder, { models: { firm: scripted({ weightsBytes: 50 * MiB }, { pinned: true }), large: scripted({ weightsBytes: 40 * MiB }) } }));
  await owner.load('firm');
  const guest = startHost(t, { stateFolder, broker: 'attach' });
  await guest.hear('up');
  guest.tell('load', 'large');
  const [waiter] = await until('it to wait', async () => {
    const { waiting } = await owner.ledger();
    return waiting.length > 0 && waiting;
  });
  t.match(waiter, { model: keyOf(owner, 'large'), position: 0 });
  t.match((await owner.ledger()).leases, [{ model: keyOf(owner, 'firm'), state: 'resident' }], 'there is no room while the pinned one stays');
  guest.child.kill('SIGKILL');
  t.equal(await guest.exited, 'SIGKILL');
  await until('its place to be gone', async () => (await owner.ledger()).waiting.length === 0);
  await owner.pin('firm', false);
  t.equal((await owner.ledger()).counters['evictions'] ?? 0, 0, 'nothing was put away for who is no more');
  await owner.load('large');
  const { leases, waiting, counters } = await owner.ledger();
  t.match(leases, [{ model: keyOf(owner, 'large'), state: 'resident' }], 'and its wish is nobody’s any more');
  t.strictSame(waiting, []);
  t.equal(counters['evictions'], 1);
});

t.test('who is attached learns by code that the owner has ended, and is served again by the next one', async (t) => {
  const stateFolder = folder(t);
  const host = startHost(t, given(stateFolder, { limits: { ...quick, shutdownDrainMs: 0 } }));
  await host.hear('up');
  const guest = await createOrchestrator({ stateFolder, broker: 'attach' });
  t.teardown(() => guest.close());
  const reader = guest.generate('talks', 'hello')[Symbol.asyncIterator]();
  await reader.next();
  const lease = await guest.lease({ model: 'held', bytes: MiB, onEvict: () => 'busy' });
  host.tell('close');
  await host.hear('closed');
  const cut = await refusal((async (): Promise<void> => { while ((await reader.next()).done !== true); })());
  t.match(cut, { code: /^(answer_cut|worker_exited|connection_lost|broker_lost|shutting_down)$/, retryable: true });
  t.match(await refusal(guest.load('talks')), { code: 'broker_lost', message: /^The broker is gone: it has ended, and none answers in /, help: /leasehold up/ });
  t.equal(lease.held, false, 'what it held is held no more');
  const next = startHost(t, given(stateFolder));
  const { bootId } = await next.hear('up');
  t.equal((await guest.generate('brief', 'hello').result()).text, 'brief');
  t.equal((await guest.ledger()).bootId, bootId);
  t.ok((await guest.lease({ model: 'held', bytes: MiB, onEvict: () => 'busy' })).held);
});

t.test('D9: when the owner ends one of those attached takes its place, and calls that wait come through', async (t) => {
  const stateFolder = folder(t);
  const host = startHost(t, given(stateFolder, { models: { slow: scripted({ loadMs: 5_000 }) } }));
  await host.hear('up');
  const changes: BrokerChange[] = [];
  const guests = await Promise.all([1, 2].map(() => createOrchestrator(given(stateFolder, { broker: 'auto', onBrokerChange: (change) => { changes.push(change); } }))));
  t.teardown(() => Promise.all(guests.map((guest) => guest.close())));
  t.strictSame(guests.map(({ ownsBroker }) => ownsBroker), [false, false]);
  const waiting = guests.map((guest) => guest.generate('brief', 'hello').result());
  host.child.kill('SIGKILL');
  await host.exited;
  t.strictSame((await Promise.all(waiting)).map(({ text }) => text), ['brief', 'brief']);
  const ledgers = await Promise.all(guests.map((guest) => guest.ledger()));
  t.equal(new Set(ledgers.map(({ bootId }) => bootId)).size, 1, 'there is one broker again');
  t.strictSame(guests.map(({ ownsBroker }) => ownsBroker).sort(), [false, true], 'and one of them owns it');
  t.match(changes.sort((a, b) => Number(a.ownsBroker) - Number(b.ownsBroker)), [false, true].map((ownsBroker) => ({ lostPid: host.child.pid, ownsBroker, devices: [/^SIM-/] })), 'each is told that another one answers, and who has to');
});

t.test('a call that is aborted ends at once, though its worker answers nothing, not even a connection', async (t) => {
  const stateFolder = folder(t);
  const owner = await open(t, given(stateFolder));
  await owner.load('brief');
  const pid = await workerPid(owner, 'brief');
  process.kill(pid, 'SIGSTOP');
  const guest = await createOrchestrator({ stateFolder, broker: 'attach' });
  t.teardown(() => guest.close());
  for (const orchestrator of [owner, guest]) {
    const stop = new AbortController();
    const call = refusal(orchestrator.generate('brief', 'hello', { signal: stop.signal }).result());
    await until('it to be placed', async () => (await orchestrator.explain('brief', 1))[0]?.verdict === 'placed');
    const abortedMs = performance.now();
    stop.abort();
    t.equal((await call).code, 'request_cancelled');
    t.ok(performance.now() - abortedMs < 1_000);
  }
  process.kill(pid, 'SIGCONT');
});

t.test('a deadline holds though the broker stands still, and the error says of whom and for how long', async (t) => {
  const stateFolder = folder(t);
  const host = startHost(t, given(stateFolder));
  await host.hear('up');
  const attached = { stateFolder, broker: 'attach', limits: { ...quick, helloTimeoutMs: 300 } } as const;
  const guest = await createOrchestrator(attached);
  t.teardown(() => guest.close());
  process.kill(host.pid, 'SIGSTOP');
  const deadlineMs = 200;
  const asked: Readonly<Record<string, () => Promise<unknown>>> = {
    generate: () => guest.generate('brief', 'hello', { deadlineMs }).result(),
    load: () => guest.load('brief', { deadlineMs }),
    evict: () => guest.evict('brief', { deadlineMs }),
    lease: () => guest.lease({ model: 'mine', bytes: 1, deadlineMs, onEvict: () => 'busy' }),
    opening: () => createOrchestrator(attached),
  };
  for (const [name, ask] of Object.entries(asked)) {
    const startedMs = performance.now();
    const error = await refusal(ask());
    const tookMs = performance.now() - startedMs;
    t.match(error, { code: 'deadline_passed', details: { reason: `the broker (pid ${String(host.pid)}) is stopped` }, help: new RegExp(`kill -CONT ${String(host.pid)}`) }, name);
    const saidMs = Number(error.details['deadlineMs']);
    t.ok(saidMs >= deadlineMs && saidMs <= tookMs + 1 && tookMs < 10_000, `${name}: ${String(saidMs)} ms, as it was`);
  }
  process.kill(host.pid, 'SIGCONT');
  t.equal((await guest.generate('brief', 'hello').result()).text, 'brief');
});

t.test('of processes that start at the same moment one owns and the others attach', async (t) => {
  const stateFolder = folder(t);
  const hosts = [1, 2, 3].map(() => startHost(t, given(stateFolder, { broker: 'auto' })));
  const ups = await Promise.all(hosts.map((host) => host.hear('up')));
  t.equal(ups.filter(({ owns }) => owns === true).length, 1);
  t.equal(new Set(ups.map(({ bootId }) => bootId)).size, 1);
  for (const host of hosts) host.tell('ask', 'brief', 'hello');
  for (const host of hosts) t.match(await host.hear('answered'), { text: 'brief' });
  const guests = hosts.filter((_, index) => ups[index]?.['owns'] !== true);
  for (const guest of guests) guest.tell('close');
  for (const guest of guests) t.equal(await guest.exited, 0);
  const owner = hosts.find((_, index) => ups[index]?.['owns'] === true);
  owner?.tell('close');
  t.equal(await owner?.exited, 0);
});

t.test('a host that blocks its loop for seconds loses neither its workers nor a stream, however little silence they are allowed', async (t) => {
  const impatient = { ...quick, heartbeatIntervalMs: 50, heartbeatMissesMax: 24, stallToleranceMs: 300, residencyFlushMs: 300, terminateGraceMs: 300, commandAnswerMs: 500 };
  const host = startHost(t, given(folder(t), { limits: impatient }));
  await host.hear('up');
  host.tell('load', 'brief');
  await host.hear('loaded');
  const before = await ledgerOf(host);
  host.tell('stream', 'talks');
  await host.hear('streaming');
  host.tell('block', '3000');
  await host.hear('blocked');
  t.match(await host.hear('streamed'), { tokens: 400 });
  const after = await ledgerOf(host);
  t.equal(after.workers.find(({ generation }) => generation === before.workers[0]?.generation)?.pid, before.workers[0]?.pid);
  t.match(after.counters, { spawns: 2, loads: 2 });
  t.notOk(after.counters['terminations.silent']);
});

t.test('B52: the process that owns the broker has no GPU library in it and no card open, with two cards and no model, and after a call', async (t) => {
  for (const devices of [['sim:64MiB,name=one', 'sim:64MiB,name=two'], ['auto']]) {
    const host = startHost(t, given(folder(t), { devices }));
    await host.hear('up');
    const check = (when: string): void => {
      const maps = readFileSync(`/proc/${String(host.pid)}/maps`, 'utf8');
      t.match(maps, /libc\.so/, 'what it has loaded can be read');
      t.notMatch(maps, /libcuda|libnvidia|libcublas|nvidia-ml|librocm|ggml/, when);
      const open = openedBy(host.pid);
      t.ok(open.some((path) => path.startsWith('socket:')), 'what it has open can be read');
      t.strictSame(open.filter((path) => /^\/dev\/(nvidia|dri|kfd|dxg)/.test(path)), [], when);
    };
    const ledger = await ledgerOf(host);
    if (devices.length === 2) t.equal(ledger.cards.length, 2);
    t.strictSame([ledger.workers, ledger.leases], [[], []], 'no models');
    check('before any model');
    host.tell('ask', 'brief', 'hello');
    await host.hear('answered');
    check('after a call');
    host.tell('close');
    await host.hear('closed');
  }
});
