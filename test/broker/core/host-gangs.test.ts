/** A model over several cards and the machine's memory: asked for with each card, granted, copied, parked and trimmed as one. */
import t from 'tap';
import { GiB, Stage, all, host0, only, plusTenth, type AskOptions } from './harness.js';

const [a, b] = ['GPU-a', 'GPU-b'] as const;
const each = { [a]: 4 * GiB, [b]: 4 * GiB };

function stage(totalBytes: number): Stage {
  const made = new Stage();
  for (const device of [a, b]) made.card(device, { totalBytes: 24 * GiB });
  made.memory(totalBytes);
  for (const device of [a, b]) made.sample(device);
  return made;
}

const half: AskOptions = { parkable: true, host: { copyBytes: 4 * GiB, peakBytes: GiB, parkPeakBytes: 4 * GiB } };

/** On both cards, with a copy where it has room. */
function loaded(on: Stage, worker: string, model: string): string[] {
  const grants = all(on.askGang(worker, model, each, half).effects, 'grant');
  for (const { lease, device, keepCopy } of grants) {
    on.take(worker, keepCopy === true ? 4 * GiB : 0, host0);
    on.load(worker, lease, 4 * GiB, { device, hostBytes: keepCopy === true ? 4 * GiB : 0 });
  }
  for (const device of [a, b, host0]) on.sample(device);
  return grants.map(({ lease }) => lease);
}

t.test('what all of its cards take of memory is there, or nothing is granted', async (t) => {
  const on = stage(12 * GiB);
  const worker = on.wideWorker([a, b], { engine: 'python' });
  const asked = on.askGang(worker, 'wide', each, { host: { neededBytes: 5 * GiB } });
  t.match(all(asked.effects, 'grant').map(({ device }) => device), [a, b], '5.5 GiB twice');
  t.equal(on.chargedBytes(host0), 2 * plusTenth(5 * GiB));

  const short = stage(12 * GiB);
  const other = short.wideWorker([a, b], { engine: 'python' });
  const app = short.session('holder');
  const blocking = short.granted(app, 'app', GiB, { device: a, host: { neededBytes: 2 * GiB } });
  const waiting = short.askGang(other, 'wide', each, { host: { neededBytes: 5 * GiB } });
  t.equal(all(waiting.effects, 'grant').length, 0, 'one of them would fit, both do not');
  t.match(all(waiting.effects, 'wait').at(-1)?.reason, /nothing may leave the machine's memory for it now: 11\.0 GiB needed/);
  t.equal(short.granted(app, 'small', GiB, { device: b }).length > 0, true, 'and nobody waits behind it on its cards');
  t.equal(short.cardView(a).holdBytes + short.cardView(b).holdBytes, 0);
  t.equal(all([...short.release(app, blocking, 'unused'), ...short.sample(host0)], 'grant').length, 2, 'both, when both have room');

  const never = short.askGang(short.wideWorker([a, b], { engine: 'python-b' }), 'huge', each, { host: { neededBytes: 6 * GiB } });
  t.strictSame(all(never.effects, 'deny').map(({ code }) => code), ['never_fits', 'never_fits'], 'together they are more than there is');
});

t.test('a copy is kept of the whole or not at all, and goes as a whole', async (t) => {
  const without = stage(6 * GiB);
  loaded(without, without.wideWorker([a, b], { engine: 'python' }), 'wide');
  t.strictSame(all(without.effects, 'grant').map(({ keepCopy }) => keepCopy), [false, false], 'half of it would have had room');

  const on = stage(10 * GiB);
  const worker = on.wideWorker([a, b], { engine: 'python' });
  const leases = loaded(on, worker, 'wide');
  t.equal(on.chargedBytes(host0), 2 * plusTenth(4 * GiB));
  const { effects } = on.ask(on.session('holder'), 'next', GiB, { device: a, host: { neededBytes: GiB * 2 } });
  t.strictSame(all(effects, 'trim_host').map(({ lease }) => lease), leases, 'for less than half of it both halves are asked for');
  t.match(all(effects, 'explain').find(({ record }) => record.verdict === 'evicting')?.record.victims, [{ lease: leases[0], action: 'trim' }, { lease: leases[1], action: 'trim', costMs: 0 }]);
  const granted = all(effects, 'trim_host').flatMap((trim) => {
    on.take(worker, -4 * GiB, host0);
    return all(on.answer(trim, { kind: 'done', target: 'device', freedBytes: 4 * GiB, residentBytes: 4 * GiB, hostBytes: 0 }), 'grant');
  });
  t.equal(granted.length, 1);
});

t.test('it is parked only with room for all of it, and unloaded else', async (t) => {
  for (const [totalBytes, target] of [[10 * GiB, 'host'], [6 * GiB, 'none']] as const) {
    const on = stage(totalBytes);
    const leases = loaded(on, on.wideWorker([a, b], { engine: 'python' }), 'wide');
    for (const lease of leases) if ((on.lease(lease)?.hostBytes ?? 0) > 0) t.equal(totalBytes, 10 * GiB);
    const moves = all(on.send({ type: 'evict_requested', generation: on.session(), request: 1, model: 'wide', target: 'host', deadlineMs: 60_000 }), 'move');
    t.strictSame(moves.map((move) => [move.lease, move.target]), leases.map((lease) => [lease, target]));
  }
});

t.test('parked, it leaves memory as a whole and for its whole worth', async (t) => {
  const on = stage(10 * GiB);
  const worker = on.wideWorker([a, b], { engine: 'python' });
  const leases = loaded(on, worker, 'wide');
  for (const move of all(on.send({ type: 'evict_requested', generation: on.session(), request: 1, model: 'wide', target: 'host', deadlineMs: 60_000 }), 'move')) {
    on.take(worker, -4 * GiB, on.lease(move.lease)!.device);
    on.answer(move, { kind: 'done', target: 'host', freedBytes: 4 * GiB, residentBytes: 0, hostBytes: 4 * GiB });
  }
  for (const device of [a, b, host0]) on.sample(device);
  t.strictSame(leases.map((lease) => on.lease(lease)?.state), ['parked', 'parked']);
  on.pass(120_000);
  for (const device of [a, b, host0]) on.sample(device);
  const { effects } = on.ask(on.session('holder'), 'next', GiB, { device: a, host: { neededBytes: 8 * GiB } });
  t.strictSame(all(effects, 'move').map(({ lease, target }) => [lease, target]), leases.map((lease) => [lease, 'none']));
  t.equal(only(effects, 'wait').reason.startsWith('room is being made in the machine\'s memory'), true);
});
