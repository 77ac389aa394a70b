/** Brokers that are killed and started again, with real processes: workers, callers and holders live on, and whoever does not come back is ended with all that it started. */
import t, { type Test } from 'tap';
import { createOrchestrator, type HeldLease, type LedgerState, type ModelOptions, type Orchestrator, type OrchestratorOptions } from '../../src/index.js';
import type { BrokerLoss } from '../../src/orchestrator/index.js';
import { startHost, type Host } from './host-process.js';
import { MiB, carriers, eager, engine, fakeSmi, folder, keyOf, leaseOf, lives, peer, quick, refusal, scripted, until, workerPid } from './support.js';

type Given = Omit<OrchestratorOptions, 'models'> & { readonly models: Readonly<Record<string, ModelOptions>> };

function isSettled({ leases, simulatedCards }: LedgerState, card: LedgerState['cards'][number]): boolean {
  const usedBytes = simulatedCards.find(({ device }) => device === card.device)?.usedBytes;
  const resident = leases.filter(({ device }) => device === card.device).reduce((sum, lease) => sum + lease.residentBytes, 0);
  return card.closed === null && card.residueBytes === 0 && card.returningBytes === 0 && card.foreignBytes === 0 && usedBytes === resident + card.floorBytes && card.sampledUsedBytes === usedBytes;
}

/** A daemon in a process of its own, which can be killed and started again, and a program that is attached to it all the while. */
class Site {
  readonly boots: string[] = [];
  daemon!: Host;
  client!: Orchestrator;
  /** Of which broker the client was told that it is gone. */
  readonly lost: BrokerLoss[] = [];

  /** Ends what is left of killed daemons, after everything else. */
  private readonly after: (() => unknown)[] = [];

  private constructor(private readonly options: OrchestratorOptions) {}

  static async open(t: Test, given: Given): Promise<Site> {
    const options: OrchestratorOptions = {
      devices: ['sim:64MiB'], classPolicies: eager, stateFolder: folder(t), broker: 'own', ...given,
      limits: { ...quick, workerIdleMs: 600_000, reattachGraceMs: 60_000, ...given.limits },
    };
    const site = new Site(options);
    await site.start();
    site.client = await createOrchestrator({ ...options, broker: 'attach', onBrokerLost: (loss) => { site.lost.push(loss); } });
    t.teardown(() => site.end());
    return site;
  }

  async start(limits: OrchestratorOptions['limits'] = {}): Promise<void> {
    this.daemon = startHost({ teardown: (done: () => unknown) => { this.after.push(done); } }, { ...this.options, limits: { ...this.options.limits, ...limits } });
    this.boots.push((await this.daemon.hear('up'))['bootId'] as string);
  }

  async kill(): Promise<void> {
    this.daemon.child.kill('SIGKILL');
    await this.daemon.exited;
  }

  /** The new one may have other limits, which whoever comes back is told. */
  async restart(limits: OrchestratorOptions['limits'] = {}): Promise<void> {
    await this.kill();
    await this.start(limits);
  }

  ledger(): Promise<LedgerState> {
    return this.client.ledger();
  }

  async ask(model: string): Promise<string> {
    return (await this.client.generate(model, 'hello').result()).text;
  }

  /** The ledger and each card agree to the byte, and nothing is on its way. */
  async atRest(): Promise<LedgerState> {
    return until('the ledger to be what is there', async () => {
      const ledger = await this.ledger();
      const isStill = ledger.leases.every(({ state }) => state === 'resident' || state === 'parked') && ledger.processes.every(({ state }) => state === 'ready');
      return ledger.waiting.length === 0 && isStill && ledger.cards.every((card) => isSettled(ledger, card)) ? ledger : null;
    });
  }

  /** Closed as people close it; of none of its brokers anything may be left. */
  async end(): Promise<void> {
    await this.client.close();
    if (this.daemon.child.exitCode === null && this.daemon.child.signalCode === null) {
      this.daemon.tell('close');
      await this.daemon.hear('closed');
    }
    for (const done of this.after) await done();
    await until('nothing to be left', () => this.boots.every((bootId) => carriers(bootId).length === 0));
  }
}

// They wait for the most part: beside each other they take little longer than the longest.
t.jobs = 4;

t.test('kill -9 of the broker and a new start: a resident model answers as before with no reload, and a stream in flight goes on', async (t) => {
  const site = await Site.open(t, {
    models: { tales: scripted({ text: 'once upon a time', weightsBytes: 8 * MiB }), steady: scripted({ text: 'word ', textTimes: 400, tokensPerSecond: 150 }) },
  });
  t.equal(await site.ask('tales'), 'once upon a time');
  const before = { lease: await leaseOf(site.client, 'tales'), pid: await workerPid(site.client, 'tales') };
  const tokens = { count: 0 };
  const streamed = (async (): Promise<void> => { for await (const { ids } of site.client.generate('steady', 'go')) tokens.count += ids.length; })();
  await until('the stream to run', () => tokens.count > 5);

  await site.kill();
  await until('the client to be told', () => site.lost.length > 0);
  t.strictSame(site.lost, [{ pid: site.daemon.child.pid, graceMs: 60_000, stopped: false }]);
  const atDeath = tokens.count;
  await until('the stream to go on without a broker', () => tokens.count > atDeath + 20);
  const waiting = site.ask('tales');
  await site.start();
  t.equal(await waiting, 'once upon a time', 'a call that came while there was none waits for it');
  await streamed;
  t.equal(tokens.count, 500, 'to its last token');

  const after = await site.atRest();
  t.equal(await workerPid(site.client, 'tales'), before.pid);
  t.match(await leaseOf(site.client, 'tales'), { lease: before.lease?.lease, generation: before.lease?.generation, chargedBytes: before.lease?.chargedBytes, residentBytes: before.lease?.residentBytes, state: 'resident' });
  t.match(after.counters, { recorded: 2, reattached: 2, loads: undefined, spawns: undefined, orphans: undefined });
  t.notOk(after.bootId === site.boots[0]);
  t.match((await site.client.explain()).filter(({ verdict }) => verdict === 'reattached'), { length: 2 });
});

t.test('a broker that is stopped lets calls end for a while; one that is cut says so, and one without a token is for the next broker', async (t) => {
  const site = await Site.open(t, {
    models: { brief: scripted({ text: 'word ', textTimes: 60, tokensPerSecond: 100 }), endless: scripted({ text: 'word ', textTimes: 100_000, tokensPerSecond: 100 }) },
    limits: { shutdownDrainMs: 60_000 },
  });
  const count = { brief: 0, endless: 0 };
  const stream = async (name: 'brief' | 'endless'): Promise<void> => { for await (const { ids } of site.client.generate(name, 'go')) count[name] += ids.length; };
  const brief = stream('brief');
  await until('the stream to run', () => count.brief > 2);
  site.daemon.tell('close');
  await brief;
  await site.daemon.hear('closed');
  t.equal(count.brief, 75, 'to its last token');
  const late = site.ask('brief');
  await site.start({ shutdownDrainMs: 200 });
  t.match(await late, /^word word/, 'asked while there was none');

  const cut = refusal(stream('endless'));
  await until('the stream to run', () => count.endless > 2);
  site.daemon.tell('close');
  t.match(await cut, { code: 'answer_cut', message: /^The broker was stopped; the answer is cut after \d+ tokens\.$/, help: /ask again when a broker runs/ });
  await site.daemon.hear('closed');
  t.match(site.lost.map(({ stopped }) => stopped), [true, true]);
  await site.start();
});

t.test('two restarts in a row, and a kill before all are back, lose nothing', async (t) => {
  const site = await Site.open(t, { models: Object.fromEntries(['a', 'b', 'c'].map((name) => [name, scripted({ text: name, weightsBytes: 8 * MiB })])) });
  for (const name of ['a', 'b', 'c']) await site.ask(name);
  const leases = (await site.ledger()).leases.map(({ lease }) => lease).sort();
  await site.restart();
  await site.restart();
  await site.restart();
  const { counters, leases: found } = await site.atRest();
  t.strictSame(found.map(({ lease }) => lease).sort(), leases);
  t.match(counters, { loads: undefined, spawns: undefined });
  for (const name of ['a', 'b', 'c']) t.equal(await site.ask(name), name);
});

t.test('killed in the middle of a load: the load goes on, whoever waits for it is served, and not a byte is counted twice', async (t) => {
  const site = await Site.open(t, { models: { slow: scripted({ text: 'here', weightsBytes: 20 * MiB, loadMs: 1_500, loadSteps: 30 }) } });
  const call = site.ask('slow');
  await until('the load to be half done', async () => ((await site.ledger()).simulatedCards[0]?.usedBytes ?? 0) > 6 * MiB);
  await site.restart();
  t.equal(await call, 'here');
  const { leases, counters } = await site.atRest();
  t.equal(leases.length, 1);
  t.match(counters, { loads: 1, spawns: undefined });
});

t.test('killed in the middle of an eviction, and of a drain: what had begun is finished, what had not is ordered anew, nobody is cut off', async (t) => {
  const site = await Site.open(t, {
    models: {
      old: scripted({ text: 'old', weightsBytes: 40 * MiB, unloadMs: 800 }),
      busy: scripted({ text: 'word ', textTimes: 200, tokensPerSecond: 100, weightsBytes: 40 * MiB }),
      next: scripted({ text: 'next', weightsBytes: 40 * MiB }),
    },
  });
  await site.ask('old');
  const evicting = site.ask('next');
  await until('the eviction to have begun', async () => (await leaseOf(site.client, 'old'))?.state !== 'resident' || (await site.client.explain('old')).some(({ verdict }) => verdict === 'evicting'));
  await site.restart();
  t.equal(await evicting, 'next');
  t.strictSame((await site.atRest()).leases.map(({ model }) => model), [keyOf(site.client, 'next')]);

  const tokens = { count: 0 };
  const streamed = (async (): Promise<void> => { for await (const { ids } of site.client.generate('busy', 'go')) tokens.count += ids.length; })();
  await until('the stream to run', () => tokens.count > 5);
  const draining = site.ask('next');
  await until('the other to wait behind the shut door', async () => (await site.ledger()).waiting.length > 0);
  await site.restart();
  await streamed;
  t.equal(tokens.count, 250, 'the stream is whole');
  t.equal(await draining, 'next');
  t.strictSame((await site.atRest()).leases.map(({ model }) => model), [keyOf(site.client, 'next')]);
});

t.test('a worker that does not come back is ended with everything that it started, and its card opens', async (t) => {
  const site = await Site.open(t, {
    engines: engine({ grandchildren: 2, grandchildrenDetached: true }), limits: { reattachGraceMs: 1_500 },
    models: { stuck: scripted({ text: 'stuck', weightsBytes: 40 * MiB }), other: scripted({ text: 'other', weightsBytes: 40 * MiB }) },
  });
  await site.ask('stuck');
  const pid = await workerPid(site.client, 'stuck');
  const tree = carriers(site.boots[0]!);
  t.equal(tree.length, 3);
  process.kill(pid, 'SIGSTOP');
  await site.restart();
  t.match((await site.ledger()).cards[0]?.closed?.waitsFor.length, 1);
  const asked = site.ask('other');
  const { reason } = await until('the request to wait', async () => (await site.ledger()).waiting[0]);
  t.match(reason, /closed to grants/);
  t.equal(await asked, 'other');
  t.ok(tree.every((each) => !lives(each)), 'worker and grandchildren are gone');
  t.match((await site.atRest()).counters, { orphans: 1, 'terminations.orphaned': 1 });
});

t.test('B85: when no broker comes back, workers end by themselves after the grace, and their children with them', async (t) => {
  const site = await Site.open(t, { engines: engine({ grandchildren: 1, grandchildrenDetached: true }), models: { tales: scripted({ text: 'once' }) } });
  await site.ask('tales');
  await site.restart({ reattachGraceMs: 6_000 });
  await site.atRest();
  t.equal(carriers(site.boots[0]!).length, 2, 'the second broker has the worker of the first');
  await site.kill();
  await until('all to be gone', () => carriers(site.boots[0]!).length === 0);
  // Asked while it is still sought, the connection is all that is known to be lost.
  t.ok(await until('whoever was attached to be told', async () => (await refusal(site.client.ledger())).code === 'broker_lost'));
});

t.test('a holder keeps its leases over a restart, and is asked for them as before', async (t) => {
  const site = await Site.open(t, { models: { large: scripted({ text: 'large', weightsBytes: 40 * MiB }) } });
  const held: { lease: HeldLease | null; orders: number } = { lease: null, orders: 0 };
  held.lease = await site.client.lease({ model: 'my reranker', bytes: 30 * MiB, onEvict: () => { held.orders += 1; return { residentBytes: 0 }; } });
  const before = (await site.ledger()).leases[0];
  const done = held.lease.use();
  await site.kill();
  t.equal(held.lease.held, true);
  await site.start();
  const after = await until('the lease to be there again', async () => (await site.ledger()).leases[0]);
  t.match(after, { lease: before?.lease, generation: before?.generation, chargedBytes: before?.chargedBytes, residentBytes: before?.residentBytes, inFlight: 1 });
  const asked = site.ask('large');
  await until('it to wait', async () => (await site.ledger()).waiting.length > 0);
  t.equal(held.orders, 0, 'while it is used nobody takes it');
  done();
  t.equal(await asked, 'large');
  t.equal(held.orders, 1);
  t.equal(held.lease.held, false);
});

t.test('a lease is its owner’s over a restart: who names it first is refused, and charged with what it has', async (t) => {
  const stateFolder = folder(t);
  const site = await Site.open(t, { models: {}, stateFolder });
  const device = (await site.ledger()).cards[0]?.device ?? '';
  const owner = startHost(t, { stateFolder, broker: 'attach', limits: quick, models: {} });
  await owner.hear('up');
  owner.tell('lease', String(20 * MiB));
  const theirs = (await owner.hear('leased'))['lease'] as string;
  const first = await peer(stateFolder, 'holder');
  const parts = [{ name: 'weights', kind: 'weights', bytes: 10 * MiB, upFront: true }];
  const grant = await first.ask({ type: 'request_vram_budget', model: 'mine', device, lease: null, parts, peakBytes: 0, class: 'normal', deadlineMs: 5_000, parkable: false, profilesFreeMemory: false, source: 'declared', policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null });
  if (grant.type !== 'grant') throw new Error(grant.type);
  first.say({ type: 'loading', lease: grant.lease });
  await first.ask({ type: 'card_allocate', device, bytes: 10 * MiB });
  const told = { type: 'residency', seq: 1, model: 'mine', state: 'resident', residentBytes: 10 * MiB, hostBytes: 0, parts: null, loadMs: 1 };
  await first.ask({ ...told, lease: grant.lease });
  const before = (await site.ledger()).leases.find(({ lease }) => lease === theirs);

  process.kill(owner.pid, 'SIGSTOP');
  await site.restart();
  t.equal((await refusal(peer(stateFolder, 'holder', before?.generation))).code, 'resume_refused', 'it cannot be the other');
  const thief = await peer(stateFolder, 'holder', first.generation);
  const list = await until('it to be asked', () => thief.heard.find((message) => message.type === 'list_models'));
  const terms = { chargedBytes: 22 * MiB, parts: [{ ...parts[0], bytes: 20 * MiB }], class: 'normal', policy: { ttlMs: null, pinned: false, exclusive: false } };
  thief.say({ type: 'models', id: (list as { readonly id: number }).id, seq: 1, models: [{ model: 'held', lease: theirs, device, state: 'resident', residentBytes: 10 * MiB, hostBytes: 0, inFlight: 0, parkable: false, terms }] });
  t.match(await refusal(thief.ask({ ...told, lease: theirs })), { code: 'lease_not_yours', details: { lease: theirs, owner: before?.generation, generation: first.generation } });
  const ledger = await site.ledger();
  t.match(ledger.leases, [{ generation: first.generation, residentBytes: 10 * MiB, chargedBytes: 10 * MiB }], 'what it has is charged');
  t.match(ledger.cards[0]?.closed?.waitsFor, [before?.generation], 'and its owner waited for');
  t.ok(await until('it to be told to put it away', () => thief.heard.some((message) => message.type === 'model_to_device' && message.lease === ledger.leases[0]?.lease)));

  process.kill(owner.pid, 'SIGCONT');
  const after = await until('its owner to have it', async () => (await site.ledger()).leases.find(({ lease }) => lease === theirs));
  t.match(after, { generation: before?.generation, model: 'held', chargedBytes: before?.chargedBytes, residentBytes: 20 * MiB, state: 'resident' });
  t.match(owner.said.filter(({ event }) => event === 'failed' || event === 'refused'), { length: 0 });
  owner.tell('close');
  await owner.hear('closed');
  thief.channel.end();
});

t.test('a model over two cards is there on both after a restart, under one name, and streams on', async (t) => {
  const site = await Site.open(t, {
    devices: ['sim:64MiB', 'sim:64MiB'],
    models: { wide: scripted({ text: 'word ', textTimes: 200, tokensPerSecond: 100, weightsBytes: 60 * MiB }, { cards: 2 }), narrow: scripted({ text: 'narrow', weightsBytes: 40 * MiB }) },
  });
  t.equal((await site.ask('wide')).length, 1_000);
  const before = await site.atRest();
  const tokens = { count: 0 };
  const streamed = (async (): Promise<void> => { for await (const { ids } of site.client.generate('wide', 'go')) tokens.count += ids.length; })();
  await until('the stream to run', () => tokens.count > 5);
  await site.restart();
  await streamed;
  t.equal(tokens.count, 250, 'the stream is whole');
  const after = await site.atRest();
  const told = ({ leases }: LedgerState) => leases.map(({ lease, device, gang, generation, chargedBytes, residentBytes }) => ({ lease, device, gang, generation, chargedBytes, residentBytes }));
  t.strictSame(told(after), told(before));
  t.equal(new Set(after.leases.map(({ gang }) => gang)).size, 1);
  t.equal(after.counters['spawns'] ?? 0, 0, 'nothing was started or loaded anew');

  t.equal(await site.ask('narrow'), 'narrow', 'who needs one of its cards has it');
  t.equal((await site.atRest()).leases.filter(({ model }) => model === keyOf(site.client, 'wide')).length, 0, 'and it has left both');
  t.equal((await site.ask('wide')).length, 1_000, 'and comes back to both');
  t.equal(new Set((await site.atRest()).leases.map(({ device }) => device)).size, 2);
});

t.test('B100: where the cards are listed in another order after a restart, what was held is of the card by its UUID', async (t) => {
  const [first, second] = ['GPU-11111111-2222-3333-4444-555555555555', 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'] as const;
  const setUsed = fakeSmi(folder(t));
  setUsed({ [first]: 100, [second]: 300 });
  const site = await Site.open(t, { devices: [first, second], models: { tales: scripted({ text: 'once' }, { device: second }) } });
  t.equal(await site.ask('tales'), 'once');
  const before = await leaseOf(site.client, 'tales');
  t.equal(before?.device, second);
  await site.kill();
  setUsed({ [second]: 300, [first]: 100 });
  await site.start();
  t.equal(await site.ask('tales'), 'once');
  const { lease, generation, device } = before ?? {};
  t.match(await leaseOf(site.client, 'tales'), { lease, generation, device });
  const { cards, counters } = await site.ledger();
  t.strictSame(cards.map((card) => [card.device, card.closed, card.sampledUsedBytes]), [[first, null, 100 * MiB], [second, null, 300 * MiB]]);
  t.match(counters, { reattached: 1, spawns: undefined });
});
