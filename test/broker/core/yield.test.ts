/** Idle models give way to programs that are not ours, where the operator wants that, and only on a reading that can be believed. */
import t from 'tap';
import { restore, snapshot } from '../../../broker/core/index.js';
import { GiB, MiB, Stage, all, card0, only, type CardOptions } from './harness.js';

/** A card of 24 GiB that keeps 2 GiB free for strangers, with two workers: a model of 8 GiB each. */
function stage(options: CardOptions & { readonly park?: boolean } = {}): { readonly on: Stage; readonly workers: readonly [string, string]; readonly leases: readonly [string, string] } {
  const on = new Stage({ limits: { yieldRestMs: 30_000 } });
  on.card(card0, { yieldFreeBytes: 2 * GiB, ...options });
  on.sample();
  const workers = [on.worker({ park: options.park ?? true }), on.worker({ park: options.park ?? true })] as const;
  const leases = [on.resident(workers[0], 'a', 8 * GiB, { parkable: true }), on.resident(workers[1], 'b', 8 * GiB, { parkable: true })] as const;
  on.pass(60_000);
  on.sample();
  return { on, workers, leases };
}

/** Strangers have so much from now on. */
function strangers(on: Stage, bytes: number, pids: readonly number[] = []): void {
  Object.assign(on.truth(), { foreignBytes: bytes, strangers: pids.map((pid) => ({ pid, usedBytes: Math.floor(bytes / pids.length) })) });
}

/** Two readings, as many as are needed to be sure. */
function twice(on: Stage): ReturnType<Stage['sample']> {
  return [...on.sample(), ...on.sample()];
}

t.test('an idle model is parked when a stranger takes more than leaves enough free, by the second reading that says so', async (t) => {
  const { on, leases } = stage();
  strangers(on, 6 * GiB, [4711, 4712]);
  t.same(all(on.sample(), 'move'), [], 'one reading moves nobody');
  const effects = on.sample();
  const move = only(effects, 'move');
  t.match(move, { lease: leases[0], target: 'host', when: 'now', bytes: null, reason: `room for other programs on ${card0}` });
  t.match(all(effects, 'publish').map(({ name, data }) => ({ name, data })), [
    { name: 'yielded', data: { device: card0, strangersBytes: 6 * GiB, beforeBytes: 0, pids: '4711 4712', victims: 1 } },
    { name: 'evicting', data: { lease: leases[0], cause: 'yield' } },
  ]);
  const [record] = all(effects, 'explain').map((effect) => effect.record);
  t.match(record?.text, /^other programs have 6\.0 GiB of GPU-0 \(pid 4711 with 3\.0 GiB, pid 4712 with 3\.0 GiB\), 6\.0 GiB more than before; 1\.6 GiB more are to be free for them: 1 victim chosen/);
  t.match(record?.victims, [{ lease: leases[0], passedOver: null, action: 'park' }, { lease: leases[1], passedOver: 'dearer' }]);
  t.match(record?.numbers, { foreignBytes: 6 * GiB, needBytes: 2 * GiB });
  t.match(on.cardView().yields, { freeBytes: 2 * GiB, blind: null, pressed: { strangersBytes: 6 * GiB, strangers: [{ pid: 4711 }, { pid: 4712 }] } });
  t.same(all(on.sample(), 'move'), [], 'what is on its way is counted');
  on.obey(move);
  on.sample();
  t.match(all(on.effects, 'publish').find(({ name }) => name === 'evicted')?.data, { lease: leases[0], cause: 'yield' });
  t.equal(on.cardView().yields?.pressed, null, 'enough is free again');
  t.equal(on.lease(leases[1])?.state, 'resident', 'and no more is put away than needed');
});

t.test('what was granted beside bytes that proved to be strangers’ when the dead could be told from them stays', async (t) => {
  const { on, workers, leases } = stage();
  on.use(workers[0], leases[0], 1);
  // The dead gives its bytes back while a stranger takes as many: no reading can tell.
  strangers(on, 8 * GiB);
  on.exit(workers[1]);
  const worker = on.worker();
  const lease = on.resident(worker, 'c', 5 * GiB);
  on.pass(60_000);
  t.equal(on.cardView().returningBytes, 0, 'nobody waits for the dead any more');
  t.same(all([...twice(on), ...twice(on)], 'move'), [], 'it was granted with them in use, and does not give way to them');
  t.equal(on.cardView().yields?.pressed?.strangersBytes, 8 * GiB);
  strangers(on, 9 * GiB);
  t.equal(only(twice(on), 'move').lease, lease, 'to what they take since, it does');
});

t.test('it is off by default: nobody gives way to a stranger', async (t) => {
  const { on } = stage({ yieldFreeBytes: null });
  strangers(on, 7 * GiB);
  t.same(all([...twice(on), ...twice(on)], 'move'), []);
  t.equal(on.cardView().yields, null);
});

t.test('strangers that leave enough free are none of our business, nor is our own use', async (t) => {
  const { on, workers } = stage();
  strangers(on, 4 * GiB);
  t.same(all([...twice(on), ...twice(on)], 'move'), [], '2.4 GiB are left');
  on.resident(workers[0], 'a', 1_600 * MiB, { lease: on.view().leases[0]?.lease ?? null, parts: [{ name: 'context:1', kind: 'context', bytes: 1_600 * MiB, upFront: true }] });
  t.ok((on.cardView().availableBytes ?? 0) < 2 * GiB, 'less is free than is to be kept');
  on.pass(60_000);
  t.same(all([...twice(on), ...twice(on)], 'move'), [], 'and it is we who took it');
});

t.test('what is busy, pinned or loading stays; when it has become idle it goes', async (t) => {
  const { on, workers, leases } = stage({ park: false });
  on.use(workers[0], leases[0], 1);
  const client = on.session();
  on.send({ type: 'pin_requested', generation: client, request: 900, model: 'b', pinned: true });
  strangers(on, 7 * GiB);
  const none = twice(on);
  t.same(all(none, 'move'), []);
  t.match(all(none, 'explain').map(({ record }) => record.text), [/and nothing idle is left to put away$/], 'it is said');
  t.same(all(twice(on), 'explain'), [], 'once');
  on.use(workers[0], leases[0], 0);
  t.match(only(on.sample(), 'move'), { lease: leases[0], target: 'none' });
});

t.test('where nothing idle suffices all of it goes: a part is of use to a stranger', async (t) => {
  const { on, leases } = stage({ yieldFreeBytes: 20 * GiB });
  strangers(on, 7 * GiB);
  const moves = all(twice(on), 'move');
  t.same(moves.map(({ lease }) => lease), leases);
  for (const move of moves) on.obey(move);
  t.same(all([...twice(on), ...twice(on)], 'terminate'), [], 'a process with a parked model is not idle');
});

t.test('models come back by ordinary demand, and are not put away again for a stranger that has not grown since', async (t) => {
  const { on, workers, leases } = stage();
  strangers(on, 6 * GiB);
  on.obey(only(twice(on), 'move'));
  on.sample();
  on.resident(workers[0], 'a', 7 * GiB, { lease: leases[0], parkable: true });
  on.pass(120_000);
  t.same(all([...twice(on), ...twice(on)], 'move'), [], 'less is free than is wanted, and nothing happens');
  strangers(on, 6 * GiB + 500 * MiB);
  t.equal(all(twice(on), 'move').length, 1, 'it takes more: that is news');
});

t.test('a stranger that takes and leaves between two readings, or again and again, does not make us flap', async (t) => {
  const { on, workers, leases } = stage();
  for (let round = 0; round < 5; round++) {
    strangers(on, 7 * GiB);
    t.same(all(on.sample(), 'move'), []);
    strangers(on, 0);
    t.same(all(on.sample(), 'move'), [], 'gone before a second reading');
  }
  strangers(on, 6 * GiB);
  on.obey(only(twice(on), 'move'));
  on.sample();
  strangers(on, 0);
  twice(on);
  on.resident(workers[0], 'a', 8 * GiB, { lease: leases[0], parkable: true });
  strangers(on, 6 * GiB);
  on.pass(10_000);
  t.same(all([...twice(on), ...twice(on)], 'move'), [], 'it was just given way to');
  on.pass(30_000);
  t.equal(all(twice(on), 'move').length, 1, 'and is again after a rest');
});

t.test('one that grows by small steps is heard, and what is granted while it presses is spared', async (t) => {
  const { on, workers, leases } = stage();
  on.use(workers[0], leases[0], 1);
  on.use(workers[1], leases[1], 1);
  for (let bytes = 4 * GiB; bytes < 5 * GiB; bytes += 8 * MiB) {
    strangers(on, bytes);
    on.sample();
  }
  t.ok(on.cardView().yields?.pressed, 'steps below what is noise add up');
  const third = on.worker();
  const late = on.resident(third, 'c', 512 * MiB, { parkable: true });
  on.pass(60_000);
  on.use(workers[1], leases[1], 0);
  const moves = all(twice(on), 'move');
  t.same(moves.map(({ lease }) => lease), [leases[1]], 'never the newcomer');
  const record = on.effects.filter((effect) => effect.type === 'explain').map((effect) => effect.record).find(({ victims }) => victims.some(({ lease }) => lease === late));
  t.match(record?.victims.find(({ lease }) => lease === late), { passedOver: 'came_later' });
});

for (const [name, options, why] of [
  ['a card that is read by its total alone (WDDM)', { confirms: 'total' }, 'its driver does not tell whose the bytes in use are'],
  ['a card that nobody confirms', { confirms: 'none' }, 'its driver does not tell whose the bytes in use are'],
] as const) {
  t.test(`${name} gives way to nobody, and says once why`, async (t) => {
    const { on } = stage(options);
    strangers(on, 7 * GiB);
    t.same(all([...twice(on), ...twice(on)], 'move'), []);
    t.equal(on.effects.filter((effect) => effect.type === 'explain' && effect.record.text === `${card0} cannot give way to other programs: ${why}`).length, 1);
    t.equal(on.cardView().yields?.blind, why);
  });
}

t.test('a rung that tells the total alone, or none that answers, moves nobody, and each is said once', async (t) => {
  const { on } = stage();
  strangers(on, 7 * GiB);
  const { foreignBytes } = on.truth();
  for (let round = 0; round < 4; round++) {
    on.nowUs += 1_000;
    on.send({ type: 'sampled', device: card0, takenAtUs: on.nowUs, usedBytes: 16 * GiB + foreignBytes, totalBytes: 24 * GiB, truth: 'nvidia-smi', processes: null });
  }
  t.match(on.cardView().yields?.blind, /^nvidia-smi tells the total alone/);
  on.truth().failing = 'failed';
  on.pass(3_000);
  on.sample();
  on.sample();
  t.equal(on.cardView().yields?.blind, 'it cannot be read');
  t.equal(on.effects.filter((effect) => effect.type === 'explain' && / cannot give way to other programs: /.test(effect.record.text)).length, 2);
  t.same(on.effects.filter((effect) => effect.type === 'move'), []);
  on.truth().failing = null;
  t.same(all(on.sample(), 'move'), [], 'back on a rung that tells, and a jump between rungs is nobody\'s growth');
});

t.test('strangers that were there before us are no news, nor are the bytes of a process of ours that has just died', async (t) => {
  const on = new Stage();
  on.card(card0, { yieldFreeBytes: 2 * GiB });
  strangers(on, 6 * GiB);
  on.sample();
  const worker = on.worker();
  on.resident(worker, 'a', 8 * GiB);
  const other = on.worker();
  on.resident(other, 'b', 7 * GiB);
  on.pass(60_000);
  t.same(all([...twice(on), ...twice(on)], 'move'), [], 'they have not grown');
  on.truth().byProcess.delete(other);
  strangers(on, 13 * GiB);
  t.same(all(twice(on), 'move'), [], 'no longer listed, its exit not yet heard of');
  on.exit(other, { keepsBytes: true });
  t.same(all(twice(on), 'move'), []);
  strangers(on, 6 * GiB);
  t.same(all([...twice(on), ...twice(on)], 'move'), []);
});

t.test('an idle worker ends for them, too; a load that measures free memory is not disturbed', async (t) => {
  const on = new Stage({ limits: { workerIdleMs: 600_000 } });
  on.card(card0, { yieldFreeBytes: 2 * GiB });
  on.sample();
  const idle = on.worker({ floorBytes: GiB });
  on.sample();
  const vllm = on.worker({ engine: 'python' });
  const lease = on.granted(vllm, 'p', 19 * GiB, { profiles: true });
  on.begin(vllm, lease);
  on.take(vllm, 19 * GiB);
  on.pass(70_000);
  on.sample();
  strangers(on, 2 * GiB);
  t.same(all([...twice(on), ...twice(on)], 'terminate'), []);
  on.report(vllm, lease, 'resident', 19 * GiB);
  t.match(all(twice(on), 'terminate'), [{ generation: idle, cause: 'evicted' }]);
});

t.test('a core that is restored goes on where it was, and the operator may change his mind', async (t) => {
  const { on } = stage();
  strangers(on, 6 * GiB);
  on.sample();
  const again = restore(JSON.parse(JSON.stringify(snapshot(on.core))));
  t.same(again.cards.get(card0)?.yielding, on.core.cards.get(card0)?.yielding);
  const { totalBytes, confirms } = on.truth();
  on.send({ type: 'card_added', device: card0, name: 'a card', kind: 'gpu', totalBytes, reserveBytes: 0, confirms, floorBytes: 0, yieldFreeBytes: null });
  t.same(all(twice(on), 'move'), []);
});
