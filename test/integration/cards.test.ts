/** Several cards in one broker, told apart by UUID alone, whatever order anybody counts them in. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createOrchestrator } from '../../src/orchestrator/index.js';
import { MiB, folder, leaseOf, open, refusal, scripted, until, workerPid } from './support.js';

const first = 'GPU-11111111-2222-3333-4444-555555555555';
const second = 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';
const neither = 'GPU-99999999-9999-9999-9999-999999999999';

/** A nvidia-smi that prints the cards that a file lists, found before any other. Returns how to set what each card uses, in MiB. */
function fakeSmi(bin: string): (usedMiB: Readonly<Record<string, number>>) => void {
  const table = join(bin, 'table');
  const command = join(bin, 'nvidia-smi');
  writeFileSync(command, `#!/bin/sh\ncat ${table}\n`);
  chmodSync(command, 0o755);
  process.env['PATH'] = `${bin}:${process.env['PATH'] ?? ''}`;
  return (used) => { writeFileSync(table, Object.entries(used).map(([uuid, mib]) => `${uuid}, 16384, ${String(mib)}, Disabled, Disabled, 580.1, A card\n`).join('')); };
}

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

t.test('R277: a card that is not there, and an index, are refused wherever a card is named', async (t) => {
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
