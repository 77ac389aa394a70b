/** Several cards in one broker, told apart by UUID alone, whatever order anybody counts them in. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createOrchestrator } from '../../src/orchestrator/index.js';
import { MiB, fakeSmi, folder, leaseOf, lives, open, refusal, scripted, until, workerPid } from './support.js';

const first = 'GPU-11111111-2222-3333-4444-555555555555';
const second = 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';
const neither = 'GPU-99999999-9999-9999-9999-999999999999';

function environmentOf(pid: number): Map<string, string> {
  return new Map(readFileSync(`/proc/${String(pid)}/environ`, 'utf8').split('\0').map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}

t.test('R277: under a mask in another order, or one that hides a card, leases, readings and what a worker sees are of the card that was meant', async (t) => {
  const setUsed = fakeSmi(folder(t));
  setUsed({ [second]: 300, [first]: 100 });
  process.env['CUDA_DEVICE_ORDER'] = 'FASTEST_FIRST';
  for (const mask of ['1,0', `${second},${first}`, '1']) {
    process.env['CUDA_VISIBLE_DEVICES'] = mask;
    const orchestrator = await open(t, { devices: [first, second], models: { one: scripted({ text: 'one' }, { device: first }), two: scripted({ text: 'two' }, { device: second.toLowerCase() }) } });
    for (const [name, device] of [['two', second], ['one', first]] as const) {
      await orchestrator.load(name);
      t.match(await leaseOf(orchestrator, name), { device, state: 'resident', residentBytes: 4.25 * MiB }, `${name} under ${mask}`);
      const environment = environmentOf(await workerPid(orchestrator, name));
      t.equal(environment.get('CUDA_VISIBLE_DEVICES'), device, 'its worker sees that card alone');
      t.equal(environment.get('CUDA_DEVICE_ORDER'), 'PCI_BUS_ID');
      t.match(JSON.parse(environment.get('LEASEHOLD_DEVICES') ?? ''), [{ device }]);
    }
    const reads = async (): Promise<unknown> => (await orchestrator.ledger()).cards.map(({ device, sampledUsedBytes }) => [device, (sampledUsedBytes ?? 0) / MiB]);
    t.strictSame(await reads(), [[first, 100], [second, 300]], 'each reading is of its card');
    setUsed({ [first]: 100, [second]: 700 });
    await until('the second card’s figure to change', async () => JSON.stringify(await reads()) === JSON.stringify([[first, 100], [second, 700]]));
    await orchestrator.close();
    setUsed({ [second]: 300, [first]: 100 });
  }
});

t.test('R122, R277: a card that is not there, and an index, are refused wherever a card is named', async (t) => {
  fakeSmi(folder(t))({ [second]: 300, [first]: 100 });
  for (const word of [neither, '0']) {
    t.match(await refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: [first, word] })), { code: 'device_unknown', details: { device: word, known: `${first}, ${second}` } }, word);
  }
  t.match(await refusal(createOrchestrator({ devices: ['cpu'], models: { m: scripted({}, { device: '0' }) } })), { code: 'config_invalid', details: { where: 'm.device' }, message: /the UUID of a card.* no index or null, not "0"/ });
  const orchestrator = await open(t, { devices: [first], models: { hidden: scripted({}, { device: second }), lost: scripted({}, { device: neither }) } });
  for (const [name, device] of [['hidden', second], ['lost', neither]] as const) {
    t.match(await refusal(orchestrator.load(name)), { code: 'device_unknown', details: { device, known: first } }, name);
    t.match(await refusal(orchestrator.lease({ model: 'host', bytes: MiB, device, onEvict: () => 'busy' })), { code: 'device_unknown', details: { device } });
  }
  t.match(await refusal(orchestrator.lease({ model: 'host', bytes: MiB, device: '1', onEvict: () => 'busy' })), { code: 'input_invalid', details: { field: 'device' } });
  t.match(await orchestrator.ledger(), { leases: [], workers: [], cards: [{ device: first }] });
});

t.test('R126: a mask that the broker’s own process was given cuts down what it manages by itself, and not what it was told by name', async (t) => {
  fakeSmi(folder(t))({ [second]: 300, [first]: 100 });
  t.teardown(() => { delete process.env['CUDA_VISIBLE_DEVICES']; });
  const managed = async (mask: string, devices: readonly string[]): Promise<readonly string[]> => {
    process.env['CUDA_VISIBLE_DEVICES'] = mask;
    const orchestrator = await open(t, { devices });
    const cards = (await orchestrator.ledger()).cards.map(({ device }) => device);
    await orchestrator.close();
    return cards;
  };
  t.strictSame(await managed('1', ['auto']), [first], 'the tool lists it second');
  t.strictSame(await managed('GPU-aaaa', ['auto']), [second]);
  t.strictSame(await managed('1,0', ['auto']), [first, second]);
  t.strictSame(await managed('', ['auto']), ['CPU-0']);
  t.strictSame(await managed('1', ['auto', second]), [first, second], 'and what is named beside it');
  process.env['CUDA_VISIBLE_DEVICES'] = `${first},${neither}`;
  t.match(await refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t) })), { code: 'config_invalid', details: { path: 'CUDA_VISIBLE_DEVICES', where: neither } });
});

t.test('B106: a card that vanishes is lost, its worker ends after a grace, the other serves on; it comes back however it is listed', async (t) => {
  const setUsed = fakeSmi(folder(t));
  setUsed({ [first]: 100, [second]: 300 });
  const orchestrator = await open(t, {
    devices: [first, second], limits: { cardLostGraceMs: 300 },
    models: { one: scripted({ text: 'one' }, { device: first }), two: scripted({ text: 'two' }, { device: second }) },
  });
  const heard: string[] = [];
  const hear = (async (): Promise<void> => { for await (const { name } of orchestrator.events()) heard.push(name); })();
  for (const name of ['one', 'two']) await orchestrator.load(name);
  const pid = await workerPid(orchestrator, 'two');
  setUsed({ [first]: 100 });
  const cardOf = async (device: string): Promise<object | undefined> => (await orchestrator.ledger()).cards.find((card) => card.device === device);
  await until('the card to be lost', async () => ((await cardOf(second)) as { lost: object | null }).lost !== null);
  t.match(await refusal(orchestrator.lease({ model: 'host', bytes: MiB, device: second, onEvict: () => 'busy' })), { code: 'device_lost', details: { device: second } });
  await until('its worker to be gone', () => !lives(pid));
  await until('its lease to be closed', async () => (await leaseOf(orchestrator, 'two')) === null);
  t.match(await refusal(orchestrator.load('two')), { code: 'device_lost', details: { device: second } });
  t.match(await orchestrator.generate('one', 'still here?').result(), { text: 'one' });
  setUsed({ [second]: 300, [first]: 100 });
  await until('the card to be back', async () => ((await cardOf(second)) as { lost: object | null }).lost === null);
  t.match(await orchestrator.generate('two', 'and you?').result(), { text: 'two' });
  await orchestrator.close();
  await hear;
  t.match(heard.filter((name) => name.startsWith('card_')), ['card_lost', 'card_regained']);
});

t.test('B107: a probe that begins to fail for all cards ends nothing and evicts nobody; who comes new hears why', async (t) => {
  const bin = folder(t);
  const setUsed = fakeSmi(bin);
  for (const allowLedgerOnly of [false, true]) {
    setUsed({ [first]: 100, [second]: 100 });
    const names = ['one', 'two', 'three'];
    const orchestrator = await open(t, { devices: [first, second], allowLedgerOnly, models: {
      ...Object.fromEntries(names.map((name) => [name, scripted({ text: `${name} `, textTimes: 300, tokensPerSecond: 100 }, { parallel: 2 })])), late: scripted({ text: 'late' }),
    } });
    const busy = names.map((name) => orchestrator.generate(name, 'go on', { maxTokens: 1_000_000 }));
    const texts = busy.map((generation) => generation.result());
    await until('three busy models', async () => (await orchestrator.ledger()).leases.filter(({ inFlight }) => inFlight === 1).length === 3);
    const good = readFileSync(join(bin, 'nvidia-smi'), 'utf8');
    writeFileSync(join(bin, 'nvidia-smi'), '#!/bin/sh\necho "Failed to initialize NVML: Driver/library version mismatch"; exit 18\n');
    await until('both cards to be unreadable', async () => (await orchestrator.ledger()).cards.every(({ missing, sampleAgeMs }) => missing !== null && /version mismatch/.test(missing.reason) && (sampleAgeMs ?? 0) > 1_000));
    t.strictSame((await Promise.all(texts)).map(({ text }) => text), names.map((name) => `${name} `.repeat(300)), 'whoever runs, runs to its end');
    const calls = await Promise.all(names.map((name) => orchestrator.generate(name, 'are you there?', { maxTokens: 1 }).result()));
    t.ok(calls.every(({ text }) => text !== ''), 'and serves on');
    const late = orchestrator.generate('late', 'and I?', { deadlineMs: 2_000 }).result();
    if (allowLedgerOnly) t.match(await late, { text: 'late' }, 'by the ledger alone where that is allowed');
    else t.match(await refusal(late), { code: 'device_unmeasured', message: /unknown \(failed\)/ });
    const { leases, cards } = await orchestrator.ledger();
    t.equal(leases.filter(({ state }) => state === 'resident').length, allowLedgerOnly ? 4 : 3, 'nobody was put away');
    t.strictSame(cards.map(({ lost }) => lost), [null, null], 'no card is lost by that');
    await orchestrator.close();
    writeFileSync(join(bin, 'nvidia-smi'), good);
  }
});

t.test('B109: what is kept free card by card is named in any order, and by no card that is not there', async (t) => {
  fakeSmi(folder(t))({ [first]: 100, [second]: 300 });
  const reserveBytes = { [second]: 8 * MiB, [first]: 20 * MiB };
  for (const inOrder of [Object.entries(reserveBytes), Object.entries(reserveBytes).reverse()]) {
    for (const devices of [[first, second], [second, first]]) {
      const orchestrator = await open(t, { devices, reserveBytes: Object.fromEntries(inOrder) });
      const found = (await orchestrator.ledger()).cards.map((card) => [card.device, card.reserveBytes] as const);
      t.strictSame(Object.fromEntries(found), reserveBytes);
      await orchestrator.close();
    }
  }
  t.match(await refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: [first, second], reserveBytes: { ...reserveBytes, 'GPU-zzz': 4 * MiB } })), { code: 'device_unknown', details: { device: 'GPU-zzz' } });
});

t.test('B101: a model whose size nobody knows yet, placed on a card that can never hold it, is answered from one that can', async (t) => {
  const orchestrator = await open(t, { devices: ['sim:24MiB', 'sim:64MiB'], models: {
    idle: scripted({ text: 'idle', weightsBytes: 44 * MiB }),
    large: scripted({ text: 'large', weightsBytes: 40 * MiB }),
    vast: scripted({ text: 'vast', weightsBytes: 80 * MiB }),
  } });
  const [small = '', big = ''] = (await orchestrator.ledger()).cards.map(({ device }) => device);
  t.match(await orchestrator.generate('idle', 'go').result(), { text: 'idle' });
  t.match(await leaseOf(orchestrator, 'idle'), { device: big });
  t.match(await orchestrator.generate('large', 'go').result(), { text: 'large' });
  t.match(await leaseOf(orchestrator, 'large'), { device: big }, 'the other was put away for it');
  t.ok((await orchestrator.explain('large', 100)).some(({ verdict, device }) => verdict === 'denied' && device === small), 'it was on the small one first');
  t.match(await refusal(orchestrator.generate('vast', 'go').result()), { code: 'never_fits' }, 'what fits nowhere is refused after one more try');
});
