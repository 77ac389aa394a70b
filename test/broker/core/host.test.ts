/** The machine's memory as a second ledger: copies, peaks, parking and what makes room for it, growth, pressure, and readings that are missing. */
import t from 'tap';
import { checkInvariants, ledgerView, restore, snapshot, step, type CoreEvent } from '../../../broker/core/index.js';
import { GiB, MiB, Stage, all, card0, host0, only, plusTenth } from './harness.js';
import { kept, stage } from './host-stage.js';

/** Parks a resident model as its worker would, a copy made or kept. */
function park(on: Stage, worker: string, lease: string, bytes: number, copy: 'kept' | 'made'): void {
  const client = on.session();
  const { model, device } = on.lease(lease)!;
  const move = only(on.send({ type: 'evict_requested', generation: client, request: 1, model, target: 'host', deadlineMs: 60_000 }), 'move');
  t.equal(move.target, 'host', `${model} is parked`);
  on.take(worker, -bytes, device);
  if (copy === 'made') on.take(worker, bytes, host0);
  on.answer(move, { kind: 'done', target: 'host', freedBytes: bytes, residentBytes: 0, hostBytes: bytes });
  on.sample(device);
  on.sample(host0);
  t.equal(on.lease(lease)?.state, 'parked');
}

t.test('a copy is charged at the grant, trued up when it is loaded, and nothing of it is leased where the machine is not', async (t) => {
  const on = stage(32 * GiB);
  const worker = on.worker({ engine: 'python' });
  const { lease, keepCopy } = only(on.ask(worker, 'm', 10 * GiB, { parkable: true, host: { copyBytes: 10 * GiB, peakBytes: 12 * GiB } }).effects, 'grant');
  t.equal(keepCopy, true);
  t.equal(on.chargedBytes(host0), plusTenth(12 * GiB), 'the peak of the load, headroom included');
  on.take(worker, 9 * GiB, host0);
  on.samples = false;
  on.load(worker, lease, 10 * GiB, { hostBytes: 9 * GiB });
  t.equal(on.chargedBytes(host0), plusTenth(12 * GiB), 'what is given back stays charged until a reading shows it');
  t.equal(on.lease(lease)?.hostChargedBytes, plusTenth(9 * GiB));
  t.equal(on.cardView(host0).residueBytes, plusTenth(12 * GiB) - plusTenth(9 * GiB));
  on.sample(host0);
  t.equal(on.chargedBytes(host0), plusTenth(9 * GiB));
  t.equal(on.cardView(host0).availableBytes, 32 * GiB - plusTenth(9 * GiB));

  const without = new Stage();
  without.card();
  const alone = without.worker({ engine: 'python' });
  t.match(only(without.ask(alone, 'm', GiB, { host: { copyBytes: GiB, peakBytes: 1_000 * GiB } }).effects, 'grant'), { keepCopy: null });
  t.equal(without.view().host, null);
});

t.test('a reading that was taken before shows nothing of what was given back since', async (t) => {
  const on = stage(32 * GiB);
  const worker = on.worker({ engine: 'python' });
  const lease = on.granted(worker, 'm', GiB, { host: { peakBytes: 10 * GiB } });
  const beforeUs = on.nowUs;
  on.samples = false;
  on.take(worker, 10 * GiB, host0);
  on.load(worker, lease, GiB);
  // Taken before the load took anything, and here only now.
  on.send({ type: 'sampled', device: host0, takenAtUs: beforeUs, usedBytes: 0, totalBytes: 32 * GiB, truth: 'system', processes: [{ generation: worker, usedBytes: 0 }] });
  t.equal(on.chargedBytes(host0), plusTenth(10 * GiB));
  on.take(worker, -10 * GiB, host0);
  on.sample(host0);
  t.equal(on.chargedBytes(host0), 0);
});

t.test('a copy is a wish: where there is no room for it the model loads without, and nobody gives way for it', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'first', 12 * GiB);
  const { effects } = on.ask(worker, 'second', 12 * GiB, { parkable: true, host: { copyBytes: 12 * GiB, peakBytes: GiB } });
  t.match(only(effects, 'grant'), { keepCopy: false });
  t.equal(all(effects, 'trim_host').length, 0);
  t.equal(on.chargedBytes(host0), plusTenth(12 * GiB) + plusTenth(GiB));
});

t.test('B184: of three models of 12 GiB that park one after another on 32 GiB the third is unloaded; a charge falls when it is measured after the wake', async (t) => {
  const on = stage(32 * GiB);
  const worker = on.worker({ engine: 'python' });
  const client = on.session();
  const leases = ['a', 'b', 'c'].map((model) => on.resident(worker, model, 12 * GiB, { parkable: true, host: { parkPeakBytes: 12 * GiB } }));
  park(on, worker, leases[0]!, 12 * GiB, 'made');
  park(on, worker, leases[1]!, 12 * GiB, 'made');
  t.equal(on.chargedBytes(host0), 2 * plusTenth(12 * GiB));
  const effects = on.send({ type: 'evict_requested', generation: client, request: 9, model: 'c', target: 'host', deadlineMs: 60_000 });
  t.match(only(effects, 'move'), { target: 'none' }, 'the third is unloaded');
  t.ok(all(effects, 'explain').some(({ record }) => record.text.includes('unloaded instead of parked')));
  t.equal(on.counter('parksRefused'), 1);
  on.obey(only(effects, 'move'));

  // Back on the card; its worker says that the copy is gone, and keeps 5 GiB of it.
  on.samples = false;
  on.granted(worker, 'a', 12 * GiB, { lease: leases[0]!, parkable: true, host: { parkPeakBytes: 12 * GiB } });
  on.load(worker, leases[0]!, 12 * GiB, { hostBytes: 0 });
  t.equal(on.chargedBytes(host0), 2 * plusTenth(12 * GiB), 'said, and not seen');
  on.take(worker, -7 * GiB, host0);
  on.sample(host0);
  // What stays is explained by the headroom of the other's lease as far as that goes.
  t.equal(on.chargedBytes(host0), 17 * GiB, 'what was measured is charged: 12 parked and 5 that stayed');
});

t.test('B185: parking takes twice the weights where the engine says nothing less: 24 of 20 GiB are too many', async (t) => {
  for (const [parkPeakBytes, target] of [[null, 'none'], [12 * GiB, 'host'], [19 * GiB, 'none']] as const) {
    const on = stage(20 * GiB);
    const worker = on.worker({ engine: 'python' });
    const client = on.session();
    on.resident(worker, 'm', 12 * GiB, { parkable: true, host: { parkPeakBytes } });
    const effects = on.send({ type: 'evict_requested', generation: client, request: 1, model: 'm', target: 'host', deadlineMs: 60_000 });
    t.equal(only(effects, 'move').target, target, `${String(parkPeakBytes)} stated`);
    t.equal(on.chargedBytes(host0), target === 'host' ? plusTenth(12 * GiB) : 0, 'the room is taken when the command is sent, and not for an unload');
  }
  const old = stage(20 * GiB);
  const worker = old.worker({ engine: 'python' });
  old.resident(worker, 'm', 12 * GiB, { parkable: true });
  t.equal(only(old.send({ type: 'evict_requested', generation: old.session(), request: 1, model: 'm', target: 'host', deadlineMs: 60_000 }), 'move').target, 'none', 'a worker that says nothing of memory');
});

t.test('B50: a park is refused up front, and the eviction has ended before the load begins', async (t) => {
  const on = stage(30 * GiB);
  on.truth(host0).foreignBytes = 21 * GiB;
  on.sample(host0);
  on.truth(card0).foreignBytes = 84 * GiB;
  const worker = on.worker({ engine: 'python' });
  const other = on.worker({ engine: 'python-b' });
  on.sample();
  const lease = on.resident(worker, 'old', 11 * GiB, { parkable: true, host: { parkPeakBytes: 11 * GiB } });
  on.pass(3_000);
  const { effects } = on.ask(other, 'new', 11 * GiB);
  const move = only(effects, 'move');
  t.match(move, { lease, target: 'none' });
  t.equal(all(effects, 'grant').length, 0);
  t.match(only(on.obey(move), 'grant'), { generation: other });
});

t.test('B188: the peak of a load is part of admission; parked models go for it, copies of resident ones before them', async (t) => {
  const on = stage(32 * GiB, { cards: 2 });
  const worker = on.worker({ engine: 'python' });
  const parked = kept(on, worker, 'parked', 8 * GiB);
  park(on, worker, parked, 8 * GiB, 'kept');
  const copied = kept(on, worker, 'copied', 4 * GiB);
  const other = on.worker({ engine: 'python-b', device: 'GPU-1' });
  on.take(other, MiB, host0);
  on.pass(3_000);
  // 22 needed, 32 - 8.8 - 4.4 = 18.8 free: the redundant copy alone makes room.
  const { effects } = on.ask(other, 'large', 20 * GiB, { device: 'GPU-1', host: { peakBytes: 20 * GiB } });
  const trim = only(effects, 'trim_host');
  t.match(trim, { lease: copied, bytes: null });
  t.equal(all(effects, 'move').length, 0, 'the parked model stays');
  t.match(all(effects, 'wait').at(-1)?.reason, /room is being made in the machine's memory/);
  on.take(worker, -4 * GiB, host0);
  const answered = on.send({ type: 'command_answered', generation: worker, command: trim.command, answer: { kind: 'done', target: 'device', freedBytes: 4 * GiB, residentBytes: 4 * GiB, hostBytes: 0 } });
  const granted = only(answered, 'grant');
  t.equal(granted.generation, other, 'granted when the reading shows the room');
  on.take(other, 20 * GiB, host0);
  on.samples = false;
  on.load(other, granted.lease, 20 * GiB, { device: 'GPU-1' });
  t.equal(on.chargedBytes(host0), plusTenth(8 * GiB) + plusTenth(20 * GiB) + MiB, 'until it is measured after the load');
  on.samples = true;
  on.take(other, -14 * GiB, host0);
  on.sample(host0);
  t.equal(on.cardView(host0).residueBytes, 6 * GiB, 'what its loader keeps is residue');

  // Another such load: now the parked model goes, to nothing.
  on.pass(3_000);
  on.sample(host0);
  on.sample('GPU-1');
  const { effects: second } = on.ask(other, 'next', 18 * GiB, { device: 'GPU-1', host: { peakBytes: 18 * GiB } });
  const move = only(second, 'move');
  t.match(move, { lease: parked, target: 'none' });
  on.take(worker, -8 * GiB, host0);
  const after = on.answer(move, { kind: 'done', target: 'none', freedBytes: 0, residentBytes: 0, hostBytes: 0 });
  t.match(only(after, 'grant'), { generation: other });
  t.equal(on.lease(parked), undefined);
});

t.test('B83, B187: a model on the CPU leases memory and no card: granted at once while there is room, then copies and idle processes give way, then it waits', async (t) => {
  const on = new Stage();
  on.card('CPU-0', { kind: 'cpu', totalBytes: 0, confirms: 'none' });
  on.memory(16 * GiB, { reserveBytes: GiB });
  on.sample(host0);
  const workers = ['one', 'two', 'three'].map((model) => on.worker({ device: 'CPU-0', model }));
  const parts = [{ name: 'weights', kind: 'weights' as const, bytes: 0, upFront: true }];
  const ask = (at: number) => on.ask(workers[at]!, `server-${String(at)}`, 0, { device: 'CPU-0', parts, host: { neededBytes: 6 * GiB } }).effects;
  t.equal(all(ask(0), 'grant').length, 1);
  t.equal(all(ask(1), 'grant').length, 1);
  t.equal(on.cardView(host0).availableBytes, 15 * GiB - 2 * plusTenth(6 * GiB));
  const third = ask(2);
  t.match(all(third, 'wait').at(-1)?.reason, /nothing may leave the machine's memory/);
  t.equal(all(on.pass(60_000), 'deny').map(({ code }) => code).join(), 'deadline_passed', 'and its end is named');
  const never = on.ask(workers[2]!, 'too-large', 0, { device: 'CPU-0', parts, host: { neededBytes: 14 * GiB } }).effects;
  t.match(only(never, 'deny'), { code: 'never_fits', details: { device: host0, needBytes: String(plusTenth(14 * GiB)), mostBytes: String(15 * GiB) } });
});

t.test('what frees room there is kept for the first in line, on whichever card it waits; one that needs less passes beside it', async (t) => {
  const on = stage(20 * GiB, { cards: 3 });
  const keeper = on.worker({ engine: 'python' });
  const lease = kept(on, keeper, 'kept', 10 * GiB);
  on.pass(3_000);
  const first = on.worker({ engine: 'python-b', device: 'GPU-1', model: 'x' });
  const second = on.worker({ engine: 'python-b', device: 'GPU-2', model: 'y' });
  const trim = only(on.ask(first, 'large', GiB, { device: 'GPU-1', host: { peakBytes: 16 * GiB } }).effects, 'trim_host');
  t.match(on.view().waiting[0], { hostNeedBytes: plusTenth(16 * GiB), hostHoldBytes: 9 * GiB });
  t.equal(all(on.ask(second, 'small', GiB, { device: 'GPU-2', host: { peakBytes: 2 * GiB } }).effects, 'grant').length, 0, 'nothing is left beside the hold');
  on.take(keeper, -10 * GiB, host0);
  const effects = on.send({ type: 'command_answered', generation: keeper, command: trim.command, answer: { kind: 'done', target: 'device', freedBytes: 10 * GiB, residentBytes: 10 * GiB, hostBytes: 0 } });
  t.strictSame(all(effects, 'grant').map(({ generation }) => generation), [first, second], 'the first in line, then who fits beside it');
  t.equal(on.lease(lease)?.hostBytes, 0);
});

t.test('on its card nobody leaves for a request that the machine could never serve now', async (t) => {
  const on = stage(20 * GiB);
  on.truth(host0).foreignBytes = 18 * GiB;
  on.truth(card0).foreignBytes = 80 * GiB;
  on.sample(host0);
  on.sample();
  const worker = on.worker({ engine: 'python' });
  on.resident(worker, 'idle', 15 * GiB);
  on.pass(3_000);
  const other = on.worker({ engine: 'python-b', model: 'z' });
  const { effects } = on.ask(other, 'wants', 15 * GiB, { host: { peakBytes: 10 * GiB } });
  t.equal(all(effects, 'move').length, 0);
  t.match(all(effects, 'wait').at(-1)?.reason, /memory/);
  on.truth(host0).foreignBytes = 0;
  t.equal(all(on.sample(host0), 'move').length, 1, 'then it does');
});

t.test('a victim that copies can make room for is parked; one that they cannot is unloaded', async (t) => {
  const on = stage(24 * GiB);
  const worker = on.worker({ engine: 'python' });
  const copy = kept(on, worker, 'copied', 12 * GiB);
  const victim = on.resident(worker, 'victim', 12 * GiB, { parkable: true, host: { parkPeakBytes: 12 * GiB } });
  const other = on.worker({ engine: 'python-b', model: 'z' });
  on.use(worker, copy, 1);
  on.pass(10_000);
  on.sample();
  on.sample(host0);
  const { effects } = on.ask(other, 'large', 75 * GiB);
  const trim = only(effects, 'trim_host');
  t.equal(trim.lease, copy, 'a busy model gives its copy without being disturbed');
  t.equal(all(effects, 'move').length, 0);
  on.take(worker, -12 * GiB, host0);
  on.send({ type: 'command_answered', generation: worker, command: trim.command, answer: { kind: 'done', target: 'device', freedBytes: 12 * GiB, residentBytes: 12 * GiB, hostBytes: 0 } });
  const moves = on.pass(250);
  t.match(only(moves, 'move'), { lease: victim, target: 'host' });
  t.equal(on.lease(victim)?.hostChargedBytes, plusTenth(12 * GiB));
});

t.test('a copy whose owner does not answer is passed over, its victim unloaded in time, and a worker that stays deaf is ended', async (t) => {
  const on = stage(24 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'copied', 12 * GiB);
  const victim = on.resident(worker, 'victim', 12 * GiB, { parkable: true, host: { parkPeakBytes: 12 * GiB } });
  const other = on.worker({ engine: 'python-b', model: 'z' });
  on.pass(10_000);
  on.use(worker, on.view().leases[0]!.lease, 1);
  on.sample();
  on.sample(host0);
  only(on.ask(other, 'large', 75 * GiB).effects, 'trim_host');
  const late = on.pass(5_500);
  t.match(only(late, 'move'), { lease: victim, target: 'none' });
  const holder = stage(20 * GiB);
  const deaf = holder.worker({ engine: 'python' });
  kept(holder, deaf, 'copied', 12 * GiB);
  const asker = holder.worker({ engine: 'python-b', model: 'z' });
  holder.ask(asker, 'large', GiB, { host: { peakBytes: 10 * GiB }, deadlineMs: 120_000 });
  const effects = holder.pass(20_000);
  t.match(only(effects, 'terminate'), { generation: deaf, cause: 'command_failed' });
});

t.test('a late answer to a trim that was given up leaves the deadline of the next alone', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'copied', 12 * GiB);
  const asker = on.worker({ engine: 'python-b', model: 'z' });
  const first = only(on.ask(asker, 'large', GiB, { host: { peakBytes: 10 * GiB }, deadlineMs: 120_000 }).effects, 'trim_host');
  const second = only(on.pass(11_000), 'trim_host');
  t.not(second.command, first.command);
  const effects = [...on.answer(first, { kind: 'failed', code: 'internal', message: 'not now', residentBytes: null }), ...on.pass(11_000)];
  t.match(only(effects, 'terminate'), { generation: worker, cause: 'command_failed' }, 'a worker that does not answer the second either is ended');
});

t.test('a copy given back of a model that has been parked meanwhile was all of it, whether that has been seen yet or not', async (t) => {
  for (const isSeen of [true, false]) {
    const on = stage(20 * GiB);
    const worker = on.worker({ engine: 'python' });
    const lease = kept(on, worker, 'copied', 12 * GiB, { host: { copyBytes: 12 * GiB, parkPeakBytes: GiB } });
    const asker = on.worker({ engine: 'python-b', model: 'z' });
    const trim = only(on.ask(asker, 'large', GiB, { host: { peakBytes: 10 * GiB } }).effects, 'trim_host');
    const move = only(on.send({ type: 'evict_requested', generation: on.session(), request: 1, model: 'copied', target: 'host', deadlineMs: 60_000 }), 'move');
    t.equal(move.target, 'host');
    on.samples = false;
    on.take(worker, -12 * GiB);
    on.answer(move, { kind: 'done', target: 'host', freedBytes: 12 * GiB, residentBytes: 0, hostBytes: 12 * GiB });
    if (isSeen) on.sample();
    t.equal(on.lease(lease)?.state, isSeen ? 'parked' : 'releasing');
    on.take(worker, -12 * GiB, host0);
    on.answer(trim, { kind: 'done', target: 'none', freedBytes: 12 * GiB, residentBytes: 0, hostBytes: 0 });
    on.sample();
    on.sample(host0);
    t.equal(on.lease(lease), undefined);
    t.strictSame([on.chargedBytes(), on.chargedBytes(host0)], [plusTenth(GiB), plusTenth(10 * GiB)], 'what is there is the load that it was asked for');
  }
});

t.test('who had no prospect and has one by now goes before the younger that room is kept for: no two take it from each other', async (t) => {
  const on = stage(20 * GiB, { cards: 3 });
  const app = on.session('holder');
  for (const device of ['GPU-0', 'GPU-1']) on.resident(app, `full-${device}`, 90 * GiB, { device, policy: { pinned: true } });
  kept(on, on.worker({ engine: 'python', device: 'GPU-2' }), 'copied', 2 * GiB, { device: 'GPU-2' });
  on.truth(host0).foreignBytes = 16 * GiB;
  on.sample(host0);
  for (const [name, device, bytes] of [['elder', 'GPU-0', 4 * GiB], ['younger', 'GPU-1', 5 * GiB]] as const) {
    on.ask(on.worker({ engine: 'python-b', device, model: `first-${name}` }), name, 20 * GiB, { device, host: { peakBytes: bytes } });
  }
  on.pass(on.core.options.limits.backfillUntilMs + 500);
  t.ok(on.core.attendedUs < on.core.options.classPolicies.normal.longestWaitMs * 1_000, 'neither has waited as long as any may');
  t.equal(on.cardView(host0).holdBytes, 0, 'all that may leave would not be enough for either');
  on.truth(host0).foreignBytes = 13 * GiB;
  on.sample(host0);
  t.equal(on.cardView(host0).holdBytes, plusTenth(4 * GiB), 'the copy could make room for the younger, and there is room for the elder');
  on.pass(500);
  t.equal(on.cardView(host0).holdBytes, plusTenth(4 * GiB), 'and so it stays');
});

t.test('an engine that cannot give a copy back by itself is not asked again', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'copied', 12 * GiB);
  const asker = on.worker({ engine: 'python-b', model: 'z' });
  const trim = only(on.ask(asker, 'large', GiB, { host: { peakBytes: 10 * GiB } }).effects, 'trim_host');
  on.send({ type: 'command_answered', generation: worker, command: trim.command, answer: { kind: 'unsupported', message: 'it is all one block' } });
  const later = on.pass(4_000);
  t.equal(all(later, 'trim_host').length, 0);
  t.match(only(later, 'move'), { model: 'copied', target: 'none', when: 'now' }, 'all of the model leaves instead');
});

t.test('a parked model whose way back is being asked for is nobody\'s victim', async (t) => {
  const on = stage(20 * GiB, { cards: 2 });
  const worker = on.worker({ engine: 'python' });
  const lease = kept(on, worker, 'a', 8 * GiB);
  park(on, worker, lease, 8 * GiB, 'kept');
  on.truth(card0).foreignBytes = 98 * GiB;
  on.sample(card0);
  t.equal(all(on.ask(worker, 'a', 8 * GiB, { lease, parkable: true }).effects, 'grant').length, 0, 'it waits for its card');
  const other = on.worker({ engine: 'python-b', device: 'GPU-1' });
  on.pass(3_000);
  const { effects } = on.ask(other, 'b', GiB, { device: 'GPU-1', host: { neededBytes: 12 * GiB } });
  t.strictSame(all(effects, 'move'), []);
  t.match(all(effects, 'wait').at(-1)?.reason, /nothing may leave the machine's memory/);
});

t.test('under pressure copies go first, then parked models, and one reading alone moves nobody', async (t) => {
  const on = stage(40 * GiB, { limits: { commandAnswerMs: 60_000, moveTimeoutMs: 60_000 } });
  const worker = on.worker({ engine: 'python' });
  const parked = kept(on, worker, 'parked', 10 * GiB);
  park(on, worker, parked, 10 * GiB, 'kept');
  const copied = kept(on, worker, 'copied', 10 * GiB);
  on.truth(host0).foreignBytes = 18.5 * GiB;
  t.strictSame(all(on.sample(host0), 'trim_host'), []);
  const first = on.sample(host0);
  t.match(only(first, 'trim_host'), { lease: copied });
  t.equal(all(first, 'move').length, 0);
  t.equal(all(on.sample(host0), 'trim_host').length, 0, 'what is on its way is waited for');
  on.take(worker, -10 * GiB, host0);
  on.answer(only(first, 'trim_host'), { kind: 'done', target: 'device', freedBytes: 10 * GiB, residentBytes: 10 * GiB, hostBytes: 0 });
  on.truth(host0).foreignBytes = 29.5 * GiB;
  on.sample(host0);
  t.match(only(on.sample(host0), 'move'), { lease: parked, target: 'none' });
  t.equal(on.counter('hostPressures'), 2);
});

t.test('R57: without a reading nothing that needs memory is granted or parked; the operator may allow the ledger alone', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  on.resident(worker, 'm', 4 * GiB, { parkable: true, host: { parkPeakBytes: 4 * GiB } });
  on.truth(host0).failing = 'failed';
  on.pass(2_500);
  t.equal(on.cardView(host0).availableBytes, null);
  t.match(all(on.ask(worker, 'peak', GiB, { host: { peakBytes: GiB } }).effects, 'wait').at(-1)?.reason, /unknown until it has been read/);
  t.match(only(on.ask(worker, 'plain', GiB, { host: { copyBytes: GiB } }).effects, 'grant'), { keepCopy: false }, 'what needs none of it goes on');
  t.match(only(on.send({ type: 'evict_requested', generation: on.session(), request: 1, model: 'm', target: 'host', deadlineMs: 60_000 }), 'move'), { target: 'none' });
  on.truth(host0).failing = null;
  t.match(only(on.pass(500), 'grant'), { generation: worker });

  const unsupported = stage(20 * GiB);
  unsupported.truth(host0).failing = 'unsupported';
  unsupported.sample(host0);
  unsupported.pass(2_500);
  const asker = unsupported.worker({ engine: 'python' });
  t.match(only(unsupported.ask(asker, 'm', GiB, { host: { peakBytes: GiB } }).effects, 'deny'), { code: 'device_unmeasured', details: { device: host0, reading: 'unsupported' } });

  const allowed = stage(20 * GiB, { allowHostUnknown: true });
  allowed.truth(host0).failing = 'failed';
  allowed.sample(host0);
  allowed.pass(2_500);
  const trusting = allowed.worker({ engine: 'python' });
  t.match(only(allowed.ask(trusting, 'm', GiB, { host: { peakBytes: 15 * GiB } }).effects, 'grant'), { generation: trusting });
  t.equal(allowed.cardView(host0).truth, 'ledger');
  t.match(all(allowed.ask(trusting, 'n', GiB, { host: { peakBytes: 15 * GiB } }).effects, 'wait').at(-1)?.reason, /memory/, 'and its sums hold');
});

t.test('on a card whose memory is the machine’s nothing is parked, no copy kept, and what a load takes beside the card is in its peak', async (t) => {
  const on = new Stage();
  on.card('GPU-u', { totalBytes: 64 * GiB, confirms: 'none', unified: true });
  const worker = on.worker({ engine: 'python', device: 'GPU-u' });
  const { lease, keepCopy, chargedBytes } = only(on.ask(worker, 'm', GiB, { device: 'GPU-u', parkable: true, host: { copyBytes: GiB, peakBytes: 2 * GiB } }).effects, 'grant');
  t.equal(keepCopy, false);
  t.equal(chargedBytes, plusTenth(3 * GiB));
  on.begin(worker, lease);
  on.report(worker, lease, 'resident', GiB);
  t.match(only(on.send({ type: 'evict_requested', generation: on.session(), request: 1, model: 'm', target: 'host', deadlineMs: 60_000 }), 'move'), { target: 'none' });
});

t.test('a worker that keeps a copy it was not given room for is charged for it, and is the first to give it back', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'first', 12 * GiB);
  const { lease } = only(on.ask(worker, 'second', 12 * GiB, { parkable: true, host: { copyBytes: 12 * GiB } }).effects, 'grant');
  on.take(worker, 8 * GiB, host0);
  on.load(worker, lease, 12 * GiB, { hostBytes: 12 * GiB });
  t.ok((on.cardView(host0).availableBytes ?? 0) < 0, 'below zero');
  on.sample(host0);
  t.equal(all(on.sample(host0), 'trim_host').length, 1);
});

t.test('figures that no machine has are refused or cut down, and their worker ended', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  t.match(only(on.ask(worker, 'm', GiB, { host: { copyBytes: Number.MAX_SAFE_INTEGER } }).effects, 'deny'), { code: 'bytes_invalid', details: { field: 'host.copyBytes' } });
  t.match(only(on.ask(worker, 'm', GiB, { host: { peakBytes: -1 } }).effects, 'deny'), { code: 'bytes_invalid', details: { field: 'host.peakBytes' } });
  const lease = on.granted(worker, 'm', GiB);
  const effects = on.load(worker, lease, GiB, { hostBytes: 21 * GiB });
  t.match(only(effects, 'terminate'), { cause: 'misbehaved' });
  t.ok(on.chargedBytes(host0) <= plusTenth(20 * GiB));
});

t.test('a snapshot goes on exactly where it was taken, shares, trims and holds included', async (t) => {
  const on = stage(20 * GiB);
  const worker = on.worker({ engine: 'python' });
  kept(on, worker, 'kept', 12 * GiB);
  const asker = on.worker({ engine: 'python-b', model: 'z' });
  const trim = only(on.ask(asker, 'large', GiB, { host: { peakBytes: 10 * GiB } }).effects, 'trim_host');
  const copy = restore(JSON.parse(JSON.stringify(snapshot(on.core))));
  on.samples = false;
  const answer: CoreEvent = {
    type: 'command_answered', atUs: on.nowUs + 10, generation: worker, command: trim.command, answer: { kind: 'done', target: 'device', freedBytes: 0, residentBytes: 12 * GiB, hostBytes: 0 },
  };
  const reading: CoreEvent = { type: 'sampled', atUs: on.nowUs + 30, device: host0, takenAtUs: on.nowUs + 20, usedBytes: 0, totalBytes: 20 * GiB, truth: 'system', processes: [{ generation: worker, usedBytes: 0 }] };
  for (const event of [answer, reading]) {
    const [there, here] = [step(copy, event), step(on.core, event)];
    t.strictSame(there, here);
    checkInvariants(copy);
    if (event === reading) t.match(only(here, 'grant'), { generation: asker });
  }
  t.strictSame(ledgerView(copy, on.nowUs), ledgerView(on.core, on.nowUs));
});
