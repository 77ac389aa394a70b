/** Models over several cards, in real processes: granted, loaded, grown, evicted and lost as a whole. */
import t from 'tap';
import { createOrchestrator, type Orchestrator } from '../../src/orchestrator/index.js';
import { MiB, folder, keyOf, leaseOf, open, refusal, scripted, until, workerPid, type Lease } from './support.js';

const three = ['sim:64MiB', 'sim:64MiB', 'sim:64MiB'];

async function leasesOf(orchestrator: Orchestrator, name: string): Promise<readonly Lease[]> {
  const key = keyOf(orchestrator, name);
  return (await orchestrator.ledger()).leases.filter(({ model }) => model === key).sort((a, b) => (a.device < b.device ? -1 : 1));
}

async function cardsOf(orchestrator: Orchestrator): Promise<readonly string[]> {
  return (await orchestrator.ledger()).cards.map(({ device }) => device);
}

/** What is taken on each card, in MiB, as the cards read themselves. */
async function taken(orchestrator: Orchestrator): Promise<readonly number[]> {
  return (await orchestrator.ledger()).simulatedCards.map(({ usedBytes }) => usedBytes / MiB);
}

async function refused(orchestrator: Orchestrator): Promise<number> {
  return (await orchestrator.ledger()).simulatedCards.reduce((sum, { oomRefusals }) => sum + oomRefusals, 0);
}

/** Nothing of it is charged any more, and every byte is back. */
async function allBack(orchestrator: Orchestrator): Promise<void> {
  await until('all bytes to be back', async () => {
    const { cards, simulatedCards } = await orchestrator.ledger();
    return cards.every(({ leasedBytes, returningBytes, residueBytes }) => leasedBytes + returningBytes + residueBytes === 0) && simulatedCards.every(({ usedBytes }) => usedBytes === 0);
  });
}

t.test('R125: a model over two cards is one lease a card, in the shares of its split, and answers', async (t) => {
  const wide = scripted({ text: 'from two cards', weightsBytes: 40 * MiB, contextBytesPerToken: 4_096, tensorSplit: '3,1' }, { cards: 2 });
  const orchestrator = await open(t, { devices: three, models: { wide, even: scripted({ weightsBytes: 8 * MiB }, { cards: 3 }) } });
  t.match(await orchestrator.generate('wide', 'where are you?').result(), { text: 'from two cards' });
  const leases = await leasesOf(orchestrator, 'wide');
  const cards = await cardsOf(orchestrator);
  t.strictSame(leases.map(({ device, state, residentBytes }) => [device, state, residentBytes / MiB]), [[cards[0], 'resident', 33], [cards[1], 'resident', 11]]);
  t.ok(leases[0]?.gang !== null && leases[0]?.gang === leases[1]?.gang, 'with a name in common');
  t.strictSame(await taken(orchestrator), [33, 11, 0], 'to the byte');
  const { processes } = await orchestrator.ledger();
  t.strictSame(processes.find(({ generation }) => generation === leases[0]?.generation)?.devices, cards.slice(0, 2), 'in one process that sees these two');
  const [record] = await orchestrator.explain('wide');
  t.match(record?.text, new RegExp(`on ${cards[0] ?? ''}, .* on ${cards[1] ?? ''}`), 'a record tells of all cards');

  await orchestrator.generate('even', 'and you?').result();
  t.equal((await leasesOf(orchestrator, 'even')).length, 3);
  t.ok(await orchestrator.evict('wide') > 0, 'confirmed free');
  t.strictSame(await leasesOf(orchestrator, 'wide'), []);
  await orchestrator.evict('even');
  await allBack(orchestrator);
});

t.test('R125: for one that needs a card of it, a model leaves all of its cards, and comes back to all', async (t) => {
  const orchestrator = await open(t, { devices: three.slice(0, 2), models: {
    wide: scripted({ text: 'wide', weightsBytes: 80 * MiB }, { cards: 2 }),
    narrow: scripted({ text: 'narrow', weightsBytes: 40 * MiB }),
  } });
  for (let turn = 0; turn < 3; turn++) {
    for (const name of ['wide', 'narrow']) t.match(await orchestrator.generate(name, 'go').result(), { text: name });
    t.strictSame(await leasesOf(orchestrator, 'wide'), [], 'not half of it');
  }
  const evictions = (await orchestrator.explain(undefined, 200)).filter(({ verdict, victims }) => verdict === 'evicting' && victims.length > 0);
  const both = evictions.find(({ victims }) => victims.filter(({ model, passedOver }) => model === keyOf(orchestrator, 'wide') && passedOver === null).length === 2);
  t.ok(both !== undefined, 'the plan names what it frees on each card');
  t.equal(await refused(orchestrator), 0);
});

t.test('two models over the same cards, one listed in the opposite order, and singles between them: all are answered', async (t) => {
  const stateFolder = folder(t);
  const before = await open(t, { devices: three.slice(0, 2), stateFolder });
  const [first = '', second = ''] = await cardsOf(before);
  await before.close();
  // A state folder's simulated cards keep their names.
  const again = await open(t, { devices: three.slice(0, 2), stateFolder, models: {
    one: scripted({ text: 'one', weightsBytes: 90 * MiB, loadMs: 30 }, { cards: 2, devices: [first, second] }),
    two: scripted({ text: 'two', weightsBytes: 90 * MiB, loadMs: 30, tensorSplit: '4,5' }, { cards: 2, devices: [second, first] }),
    single: scripted({ text: 'single', weightsBytes: 30 * MiB, loadMs: 10 }),
  } });
  const calls = Array.from({ length: 24 }, (_, index) => ['one', 'two', 'single'][index % 3] ?? 'one');
  const answers = await Promise.all(calls.map((name) => again.generate(name, 'go', { class: 'normal' }).result()));
  t.strictSame(answers.map(({ text }) => text), calls);
  t.equal(await refused(again), 0, 'no card refused an allocation');
  for (const name of new Set(calls)) t.ok([0, 1, 2].includes((await leasesOf(again, name)).length));
  t.strictSame((await again.ledger()).cards.map(({ forming }) => forming), [null, null], 'no gang is left half formed');
});

t.test('a further context is granted on each card, and a parked model comes back to each', async (t) => {
  const orchestrator = await open(t, { devices: three.slice(0, 2), models: {
    wide: scripted({ text: 'x', textTimes: 40, tokensPerSecond: 200, weightsBytes: 60 * MiB, contextBytesPerToken: 2_048, parkable: true }, { cards: 2, parallel: 2 }),
    narrow: scripted({ text: 'narrow', weightsBytes: 50 * MiB }),
  } });
  const two = [orchestrator.generate('wide', 'a', { maxTokens: 40 }).result(), orchestrator.generate('wide', 'b', { maxTokens: 40 }).result()];
  await until('a second context on both cards', async () => {
    const leases = await leasesOf(orchestrator, 'wide');
    return leases.length === 2 && leases.every(({ residentBytes }) => residentBytes === 32 * MiB);
  });
  await Promise.all(two);
  await orchestrator.load('narrow');
  const parked = await leasesOf(orchestrator, 'wide');
  t.strictSame(parked.map(({ state, hostBytes }) => [state, hostBytes / MiB]), [['parked', 30], ['parked', 30]], 'each counts its share of the copy');
  await orchestrator.evict('narrow');
  t.match(await orchestrator.generate('wide', 'again', { maxTokens: 1 }).result(), { reason: 'length' });
  t.strictSame((await leasesOf(orchestrator, 'wide')).map(({ state, lease }, index) => [state, lease === parked[index]?.lease]), [['resident', true], ['resident', true]], 'under the same leases');
});

t.test('B97: what goes wrong on one card leaves nothing on the other', async (t) => {
  const orchestrator = await open(t, { devices: three.slice(0, 2), models: {
    broken: scripted({ weightsBytes: 40 * MiB, faults: [{ at: 'load', how: 'throw', afterFraction: 0.5 }] }, { cards: 2 }),
    dies: scripted({ weightsBytes: 40 * MiB, faults: [{ at: 'generate', how: 'kill' }] }, { cards: 2 }),
    huge: scripted({ weightsBytes: 120 * MiB, tensorSplit: '9,1' }, { cards: 2 }),
    well: scripted({ text: 'well', weightsBytes: 110 * MiB }, { cards: 2 }),
  } });
  t.match(await refusal(orchestrator.load('broken')), { code: 'load_failed' });
  t.match(await refusal(orchestrator.load('huge')), { code: 'never_fits' }, 'one card is too small for its share');
  t.match(await refusal(orchestrator.generate('dies', 'go').result()), { code: 'worker_exited' });
  t.match(await orchestrator.generate('well', 'and you?').result(), { text: 'well' }, 'both cards are free for the next');
  const pid = await workerPid(orchestrator, 'well');
  process.kill(pid, 'SIGKILL');
  await until('its leases to be closed', async () => (await leaseOf(orchestrator, 'well')) === null);
  await allBack(orchestrator);
});

t.test('over how many cards, and which, is checked where it is said', async (t) => {
  const given = (options: object): Promise<unknown> => createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: three, models: { m: scripted({}, options) } });
  const [a, b] = ['GPU-11111111-2222-3333-4444-555555555555', 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'];
  const rows = [
    [{ cards: 0 }, 'm.cards', /1/], [{ cards: 1.5 }, 'm.cards', /integer/], [{ cards: 65 }, 'm.cards', /64/],
    [{ devices: [] }, 'm.devices', /list of the UUIDs/], [{ devices: ['0'] }, 'm.devices', /no indices/],
    [{ device: a, devices: [a] }, 'm.devices', /device, or devices/], [{ device: a, cards: 2 }, 'm.cards', /may use 1/], [{ devices: [a, a.toUpperCase(), b], cards: 3 }, 'm.cards', /may use 2/],
  ] as const;
  for (const [options, where, message] of rows) t.match(await refusal(given(options)), { code: 'config_invalid', details: { where }, message }, JSON.stringify(options));
  const orchestrator = await open(t, { devices: three.slice(0, 2), models: {
    wide: scripted({}, { cards: 3 }), elsewhere: scripted({}, { cards: 2, devices: [a, b] }),
    wrong: scripted({ tensorSplit: '1,2,3' }, { cards: 2 }),
  } });
  t.match(await refusal(orchestrator.load('wide')), { code: 'gang_unsupported', details: { size: '3', reason: 'there are 2 cards' } });
  t.match(await refusal(orchestrator.load('elsewhere')), { code: 'device_unknown', details: { device: a } });
  t.match(await refusal(orchestrator.load('wrong')), { code: 'input_invalid', details: { field: 'tensorSplit' } });
});

t.test('llama.cpp’s measured bytes are on several cards in the shares of its split, and never more than was granted', async (t) => {
  const orchestrator = await open(t, { devices: ['sim:14MiB,floor=1MiB', 'sim:14MiB,floor=1MiB'], models: {
    facts: { source: 'tiny-facts', cards: 2, options: { tensorSplit: '2,1' } },
    sums: { source: 'tiny-sums', cards: 2 },
  } });
  t.match(await orchestrator.generate('facts', { messages: [{ role: 'user', content: 'What colour is the sky?' }] }, { temperature: 0, maxTokens: 64 }).result(), { text: /blue/i });
  const leases = await leasesOf(orchestrator, 'facts');
  const [first = 0, second = 0] = leases.map(({ residentBytes }) => residentBytes);
  t.ok(Math.abs(first - 2 * second) <= 8, `${String(first)} is twice ${String(second)}`);
  const { simulatedCards } = await orchestrator.ledger();
  t.strictSame(simulatedCards.map(({ usedBytes }) => usedBytes - MiB), [first, second], 'what it says is what the cards have, its floor apart');
  for (const { residentBytes, chargedBytes } of leases) t.ok(residentBytes <= chargedBytes);
  t.match(await orchestrator.generate('sums', { messages: [{ role: 'user', content: 'What is 2 + 3?' }] }, { temperature: 0, maxTokens: 128 }).result(), { text: /5/ });
  t.equal(await refused(orchestrator), 0);
  for (const name of ['facts', 'sums']) await orchestrator.evict(name);
  t.strictSame((await orchestrator.ledger()).cards.map(({ leasedBytes }) => leasedBytes), [0, 0]);
});
