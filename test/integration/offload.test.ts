/** llama.cpp with a model that is too large for its card: with fewer layers there where the operator allows that, else refused with what could be had. */
import t, { type Test } from 'tap';
import type { LeaseView, ModelOptions, Orchestrator } from '../../src/orchestrator/index.js';
import { MiB, open, refusal } from './support.js';

const plusTenth = (bytes: number): number => Math.floor((bytes * 11 + 9) / 10);

function openWith(t: Test, device: string, offload: ModelOptions['offload'], rest: Parameters<typeof open>[1] = {}): Promise<Orchestrator> {
  return open(t, { devices: [device], models: { tales: { source: 'tiny-tales', contextTokens: 256, ...(offload === undefined ? {} : { offload }) } }, ...rest });
}

async function onlyLease(orchestrator: Orchestrator): Promise<LeaseView> {
  const { leases } = await orchestrator.ledger();
  const [lease] = leases;
  if (lease === undefined || leases.length > 1) throw new Error(`wanted one lease, there are ${String(leases.length)}`);
  return lease;
}

const answer = async (orchestrator: Orchestrator): Promise<string> => (await orchestrator.generate('tales', 'Once', { maxTokens: 8, temperature: 0 }).result()).text;

t.test('a card too small for the whole model answers with the most layers that fit, as the whole does, and says so', async (t) => {
  const large = await openWith(t, 'sim:64MiB', { minGpuLayers: 1 });
  const wanted = await answer(large);
  const whole = await onlyLease(large);
  t.equal(whole.layers, null, 'where all of it fits, all of it is there');

  for (const totalBytes of [2 * MiB, 3 * MiB]) {
    const small = await openWith(t, `sim:${String(totalBytes)}`, { minGpuLayers: 1 });
    t.equal(await answer(small), wanted);
    const lease = await onlyLease(small);
    const { onCard, total } = lease.layers ?? { onCard: 0, total: 0 };
    t.equal(total, 6);
    const bytesWith = (layers: number): number => whole.parts.reduce((sum, { bytes }) => sum + Math.ceil((bytes * layers) / total), 0);
    t.ok(plusTenth(bytesWith(onCard)) <= totalBytes && plusTenth(bytesWith(onCard + 1)) > totalBytes, `${String(onCard)} are the most of ${String(total)} that fit ${String(totalBytes)} bytes`);
    t.equal(lease.parts[0]?.name, `weights:${String(onCard)}/6`);
    t.ok(Math.abs(lease.residentBytes - bytesWith(onCard)) <= 2 && lease.chargedBytes === plusTenth(lease.residentBytes), 'what is leased is what so many layers take');
    const { simulatedCards } = await small.ledger();
    t.match(simulatedCards, [{ usedBytes: lease.residentBytes, oomRefusals: 0 }], 'and what the card has');
    const texts = (await small.explain('tales', 20)).map(({ text }) => text);
    t.ok(texts.some((text) => /can never fit on SIM-.*4\.3 MiB needed/.test(text)), 'why');
    t.ok(texts.some((text) => text.includes(`with ${String(onCard)} of its 6 layers, the others on the CPU`)), 'and what came of it');
    await small.evict('tales');
    t.equal(await answer(small), wanted, 'and again');
    t.strictSame((await onlyLease(small)).layers, { onCard, total });
  }
});

t.test('without the operator’s word it is all or nothing, and the refusal says what could be had', async (t) => {
  const strict = await openWith(t, 'sim:3MiB', undefined);
  const refused = await refusal(answer(strict));
  t.equal(refused.code, 'never_fits');
  const couldHave = Number(refused.details['couldHaveBytes']);
  t.ok(plusTenth(couldHave) <= 3 * MiB && plusTenth(couldHave + 1) > 3 * MiB, `${String(couldHave)} bytes could be had`);
  t.strictSame((await strict.ledger()).leases, []);
});

t.test('never fewer layers than allowed: the refusal is that of the fewest', async (t) => {
  const orchestrator = await openWith(t, 'sim:2MiB', { minGpuLayers: 5 });
  const refused = await refusal(answer(orchestrator));
  t.match(refused, { code: 'never_fits' });
  const texts = (await orchestrator.explain(undefined, 50)).filter(({ verdict }) => verdict === 'denied').map(({ text }) => text);
  t.match([...texts].reverse().slice(0, 2), [/4\.3 MiB needed/, /3\.6 MiB needed/]);
  t.strictSame((await orchestrator.ledger()).leases, []);
});

t.test('the layers that are left out are counted in the machine’s memory', async (t) => {
  const small = await openWith(t, 'sim:3MiB', { minGpuLayers: 1 }, { hostMemory: { lease: 'system', reserveBytes: 0, allowUnknown: true } });
  await answer(small);
  const lease = await onlyLease(small);
  const leftOut = plusTenth(Math.floor((lease.residentBytes * 2) / 4));
  t.ok((lease.hostChargedBytes ?? 0) >= leftOut, `${String(lease.hostChargedBytes)} bytes charged there; ${String(leftOut)} are left out of the card`);
});
