/** The machine's memory where an earlier broker leased it: closed until its processes have said what they were granted, then charged as if it had never ended. */
import t from 'tap';
import type { HostNeed, ModelState } from '../../../protocol/index.js';
import { shareReading } from '../../../broker/core/index.js';
import { all, card0, GiB, host0, only, plusTenth, Stage, weights } from './harness.js';

const worker = 'old-w1';
const holder = 'old-s4';
const noNeed: HostNeed = { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null };

interface Found {
  readonly recorded?: readonly ('worker' | 'holder')[];
  /** Of the machine's memory, as the kernel shows it for the worker. */
  readonly readBytes?: number;
  /** What is on record of its cost there. */
  readonly floorBytes?: number;
}

/** A new broker on a machine of 32 GiB, with what lives on of the dead one's. */
function restarted(found: Found = {}): Stage {
  const stage = new Stage({ limits: { reattachGraceMs: 30_000 } });
  stage.card(card0, { totalBytes: 100 * GiB });
  stage.memory(32 * GiB);
  stage.take(worker, found.readBytes ?? 0, host0);
  for (const role of found.recorded ?? ['worker']) {
    const generation = role === 'worker' ? worker : holder;
    const floors = role === 'worker' && found.floorBytes !== undefined ? [{ device: host0, bytes: found.floorBytes }] : [];
    stage.send({ type: 'process_recorded', generation, role, name: role, engine: role === 'worker' ? 'python' : null, devices: [card0], floors });
  }
  read(stage);
  return stage;
}

function read(stage: Stage): void {
  stage.sample(card0);
  stage.sample(host0);
}

function held(bytes: number, host: Partial<HostNeed>, changes: Partial<ModelState> = {}): ModelState {
  return {
    model: 'tales', lease: 'old-w1-l7', device: card0, state: 'resident', residentBytes: bytes, hostBytes: 0, inFlight: 0, parkable: true,
    terms: { chargedBytes: plusTenth(bytes), parts: [weights(bytes)], class: 'normal', policy: { ttlMs: null, pinned: false, exclusive: false }, host: { ...noNeed, ...host } },
    ...changes,
  };
}

/** Comes back and says everything. */
function returns(stage: Stage, models: readonly ModelState[], generation = worker): ReturnType<Stage['send']> {
  stage.send({ type: 'process_resumed', generation });
  if (generation === worker) stage.send({ type: 'process_ready', generation, capabilities: { park: true, partial: false, embed: false, profilesFreeMemory: false }, floors: [{ device: card0, bytes: 0 }] });
  for (const { residentBytes } of models) stage.take(generation, residentBytes);
  return stage.send({ type: 'models_announced', generation, seq: 1, models });
}

t.test('nothing is granted of the machine\'s memory before every process of the earlier broker has said what it was granted', async (t) => {
  const stage = restarted({ recorded: ['worker', 'holder'] });
  stage.card('GPU-1', { totalBytes: 100 * GiB });
  stage.sample('GPU-1');
  t.strictSame(stage.cardView(host0).closed?.waitsFor, [worker, holder]);
  const app = stage.session('holder');
  const elsewhere = { device: 'GPU-1', host: { neededBytes: GiB } };
  const asked = stage.ask(app, 'sums', GiB, elsewhere);
  t.equal(all(asked.effects, 'grant').length, 0, 'the card is open, the memory is not');
  t.match(only(asked.effects, 'wait').reason, /has not said what it holds of the machine's memory.*HOST-0 is closed to grants until old-w1, old-s4/);
  t.match(only(stage.ask(stage.session('holder'), 'words', GiB, { device: 'GPU-1', host: { copyBytes: GiB } }).effects, 'grant'), { keepCopy: false }, 'who only wishes for a copy waits for nothing, and has none');
  returns(stage, []);
  t.equal(all(stage.effects, 'grant').length, 1);
  t.equal(only(returns(stage, [], holder), 'grant').device, 'GPU-1', 'when the last of them has');
  t.equal(stage.cardView(host0).closed, null);
  t.equal(stage.chargedBytes(host0), plusTenth(GiB));
});

t.test('a load under way is charged what it was granted, not what it has taken by now', async (t) => {
  const stage = restarted({ readBytes: 2 * GiB });
  returns(stage, [held(GiB, { copyBytes: 10 * GiB, peakBytes: 20 * GiB }, { state: 'loading' })]);
  read(stage);
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(20 * GiB));
  const app = stage.session('holder');
  t.equal(all(stage.ask(app, 'sums', GiB, { host: { neededBytes: 12 * GiB } }).effects, 'grant').length, 0, 'though the kernel shows 30 GiB free');
  stage.take(worker, 8 * GiB, host0);
  stage.report(worker, 'old-w1-l7', 'resident', GiB, { hostBytes: 10 * GiB });
  read(stage);
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(10 * GiB), 'loaded: what it needs and its copy');
  t.equal(all(stage.effects, 'grant').length, 1, 'and the room is there');
});

t.test('an announcement ends no load in memory that goes on on its card, least of all one under the name of another\'s lease', async (t) => {
  for (const lease of [null, 'old-w2-l1']) {
    const stage = restarted({ readBytes: 2 * GiB });
    const load = held(GiB, { copyBytes: 10 * GiB, peakBytes: 20 * GiB }, { state: 'loading', residentBytes: 0 });
    returns(stage, [load]);
    stage.send({ type: 'models_announced', generation: worker, seq: 2, models: [{ ...load, lease, state: 'resident' }] });
    t.match(stage.lease('old-w1-l7'), { state: 'loading', hostChargedBytes: plusTenth(20 * GiB) });
  }
});

t.test('copies and parked models come back with their bytes, and are the first to make room', async (t) => {
  const stage = restarted({ readBytes: 20 * GiB });
  returns(stage, [
    held(12 * GiB, { copyBytes: 12 * GiB }, { hostBytes: 12 * GiB }),
    held(8 * GiB, { copyBytes: 8 * GiB }, { model: 'sums', lease: 'old-w1-l8', state: 'parked', residentBytes: 0, hostBytes: 8 * GiB }),
  ]);
  read(stage);
  t.equal(stage.cardView(host0).leasedBytes, plusTenth(12 * GiB) + plusTenth(8 * GiB));
  t.equal(stage.cardView(host0).residueBytes, 0, 'nothing of what was read is left unexplained');
  t.equal(stage.cardView(host0).foreignBytes, 0);
  const { effects } = stage.ask(stage.session('holder'), 'words', GiB, { host: { neededBytes: 15 * GiB } });
  t.match(only(effects, 'trim_host'), { lease: 'old-w1-l7', bytes: null });
});

t.test('a park under way is charged its peak until it is done', async (t) => {
  const stage = restarted({ readBytes: 4 * GiB });
  returns(stage, [held(10 * GiB, { parkPeakBytes: 15 * GiB }, { state: 'parking' })]);
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(15 * GiB));
  stage.take(worker, -10 * GiB);
  stage.take(worker, 6 * GiB, host0);
  stage.report(worker, 'old-w1-l7', 'parked', 0, { hostBytes: 10 * GiB });
  read(stage);
  read(stage);
  t.match(stage.lease('old-w1-l7'), { state: 'parked', hostChargedBytes: plusTenth(10 * GiB) });

  const unsaid = restarted({ readBytes: GiB });
  returns(unsaid, [held(10 * GiB, {}, { state: 'parking' })]);
  t.equal(unsaid.lease('old-w1-l7')?.hostChargedBytes, 20 * GiB, 'twice its weights where the engine does not say');
});

t.test('what a process has beyond its leases is its floor where that was never told, and its growth where it was', async (t) => {
  const untold = restarted({ readBytes: 5 * GiB });
  returns(untold, [held(GiB, { copyBytes: GiB }, { hostBytes: GiB })]);
  read(untold);
  t.match(untold.cardView(host0), { floorBytes: 4 * GiB, residueBytes: 0 });
  t.equal(untold.counter('hostGrowths'), 0);

  const told = restarted({ readBytes: 5 * GiB, floorBytes: GiB });
  returns(told, [held(GiB, { copyBytes: GiB }, { hostBytes: GiB })]);
  read(told);
  t.match(told.cardView(host0), { floorBytes: GiB, residueBytes: 5 * GiB - GiB - plusTenth(GiB) });
  t.equal(told.counter('hostGrowths'), 1, 'it is asked for that as it would have been before');
  t.match(all(told.effects, 'trim_host'), [{ lease: 'old-w1-l7' }]);
});

t.test('while nothing is known of a process it is charged what it is read to have, and the machine opens with its end', async (t) => {
  const stage = restarted({ readBytes: 6 * GiB });
  t.equal(stage.chargedBytes(host0), 6 * GiB);
  stage.take(worker, 3 * GiB, host0);
  read(stage);
  t.equal(stage.chargedBytes(host0), 9 * GiB);
  t.equal(stage.cardView(host0).foreignBytes, 0);
  const app = stage.session('holder');
  stage.ask(app, 'sums', GiB, { host: { neededBytes: 20 * GiB } });
  t.equal(only(stage.pass(31_000), 'terminate').cause, 'orphaned');
  t.equal(all(stage.exit(worker), 'grant').length, 1);
  t.match(stage.cardView(host0), { closed: null, leasedBytes: plusTenth(20 * GiB), floorBytes: 0, residueBytes: 0 });
});

t.test('a program that never comes back keeps the machine\'s memory closed for its grace alone: what it has is in every reading', async (t) => {
  const stage = restarted({ recorded: ['holder'] });
  stage.truth(host0).foreignBytes = 4 * GiB;
  stage.pass(31_000);
  t.equal(stage.cardView(host0).closed, null);
  t.equal(only(stage.ask(stage.session('holder'), 'sums', 0, { parts: [], host: { neededBytes: 20 * GiB } }).effects, 'grant').device, card0);
  returns(stage, [held(GiB, { neededBytes: 4 * GiB }, { lease: 'old-s4-l7' })], holder);
  t.equal(stage.lease('old-s4-l7')?.hostChargedBytes, plusTenth(4 * GiB), 'late, but told');
});

t.test('of the machine\'s memory nobody was granted more than all, and what cannot be bytes is nothing', async (t) => {
  for (const [host, hostChargedBytes] of [
    [{ neededBytes: 33 * GiB }, plusTenth(32 * GiB)], [{ neededBytes: 20 * GiB, copyBytes: 20 * GiB }, plusTenth(32 * GiB)], [{ peakBytes: 2 ** 50 }, plusTenth(32 * GiB)],
    [{ copyBytes: 20 * GiB, parkPeakBytes: 33 * GiB }, plusTenth(20 * GiB)], [{ neededBytes: -1 }, 0], [{ copyBytes: 2 ** 53 }, 0],
  ] as const) {
    const stage = restarted();
    returns(stage, [held(GiB, host, { state: 'loading' })]);
    t.match(stage.lease('old-w1-l7'), { state: 'loading', hostChargedBytes });
  }
});

t.test('a connection lost alone voids a trim that was asked for by it, and blames nobody', async (t) => {
  const stage = restarted({ readBytes: 12 * GiB });
  returns(stage, [held(12 * GiB, { copyBytes: 12 * GiB }, { hostBytes: 12 * GiB })]);
  read(stage);
  const { effects } = stage.ask(stage.session('holder'), 'words', GiB, { host: { neededBytes: 25 * GiB } });
  const trim = only(effects, 'trim_host');
  stage.send({ type: 'session_closed', generation: worker, reason: 'cut' });
  stage.pass(20_000);
  t.equal(stage.counter('commandTimeouts'), 0);
  returns(stage, [held(0, { copyBytes: 12 * GiB }, { residentBytes: 12 * GiB, hostBytes: 12 * GiB })]);
  stage.take(worker, -12 * GiB);
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(12 * GiB));
  stage.answer(trim, { kind: 'done', target: 'none', freedBytes: 12 * GiB, residentBytes: 12 * GiB, hostBytes: 0 });
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(12 * GiB), 'an answer to what is void says nothing');
});

t.test('what is leaving a card that nothing measures stays charged, there and in memory, until its owner says that it has left', async (t) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 100 * GiB, confirms: 'none' });
  stage.memory(32 * GiB);
  stage.send({ type: 'process_recorded', generation: holder, role: 'holder', name: 'app', engine: null, devices: [card0], floors: [] });
  read(stage);
  returns(stage, [
    held(4 * GiB, { neededBytes: GiB }, { lease: 'old-s4-l7', state: 'unloading' }),
    held(8 * GiB, { copyBytes: 8 * GiB }, { model: 'sums', lease: 'old-s4-l8', state: 'parking', hostBytes: 8 * GiB }),
    held(0, { neededBytes: 2 * GiB }, { model: 'words', lease: 'old-s4-l9', state: 'unloading', terms: { ...held(0, {}).terms!, chargedBytes: 0 } }),
  ], holder);
  t.equal(stage.cardView().leasedBytes, plusTenth(4 * GiB) + plusTenth(8 * GiB), 'said to be under way, and there');
  t.equal(stage.lease('old-s4-l7')?.hostChargedBytes, plusTenth(GiB));
  t.equal(stage.lease('old-s4-l8')?.hostChargedBytes, plusTenth(8 * GiB));
  stage.release(holder, 'old-s4-l7');
  stage.release(holder, 'old-s4-l9');
  stage.report(holder, 'old-s4-l8', 'parked', 0, { hostBytes: 8 * GiB });
  t.equal(stage.cardView().leasedBytes, 0);
  t.match(stage.view().leases, [{ lease: 'old-s4-l8', state: 'parked', hostChargedBytes: plusTenth(8 * GiB) }]);

  const measured = restarted({ recorded: ['holder'] });
  returns(measured, [held(0, { neededBytes: 2 * GiB }, { lease: 'old-s4-l7', state: 'unloading', terms: { ...held(0, {}).terms!, chargedBytes: 0 } })], holder);
  t.match(measured.view(), { leases: [], host: { leasedBytes: 0 } }, 'it has nothing more on its card, so it is over');
});

t.test('nothing is parked while it is not known what the memory is promised for', async (t) => {
  const stage = restarted({ recorded: ['worker', 'holder'] });
  returns(stage, [held(4 * GiB, { parkPeakBytes: 4 * GiB })]);
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'tales', target: 'host', deadlineMs: 60_000 }), 'move');
  t.equal(move.target, 'none', 'unloaded, though the kernel shows 32 GiB free');
});

t.test('a park goes on when the connection of its process is lost, and stays charged its peak until its process says how it ended', async (t) => {
  const stage = restarted({ readBytes: 4 * GiB });
  returns(stage, [held(10 * GiB, { parkPeakBytes: 15 * GiB })]);
  read(stage);
  only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'tales', target: 'host', deadlineMs: 60_000 }), 'move');
  stage.send({ type: 'session_closed', generation: worker, reason: 'cut' });
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(15 * GiB));
  const peer = stage.session('holder');
  t.equal(all(stage.ask(peer, 'sums', GiB, { host: { neededBytes: 16 * GiB } }).effects, 'grant').length, 0);
  stage.take(worker, -10 * GiB);
  stage.take(worker, 10 * GiB, host0);
  returns(stage, [{ ...held(10 * GiB, { parkPeakBytes: 15 * GiB }), state: 'parked', residentBytes: 0, hostBytes: 10 * GiB }]);
  t.equal(stage.lease('old-w1-l7')?.hostChargedBytes, plusTenth(10 * GiB));
});

t.test('what two sessions of one process hold of it is told apart by their leases', async (t) => {
  const stage = restarted({ recorded: [] });
  const [first, second] = [stage.session('holder'), stage.session('holder')];
  for (const [session, model, bytes] of [[first, 'sums', 2 * GiB], [second, 'words', 4 * GiB]] as const) {
    const lease = stage.granted(session, model, GiB, { host: { neededBytes: bytes } });
    stage.begin(session, lease);
    stage.take(session, GiB);
    stage.report(session, lease, 'resident', GiB, { parts: [weights(GiB)], loadMs: 1 });
  }
  t.strictSame(shareReading(stage.core, host0, [first, second], 7 * GiB), [{ generation: first, usedBytes: 3 * GiB }, { generation: second, usedBytes: 4 * GiB }], 'what no lease explains is the first’s');
  t.strictSame(shareReading(stage.core, host0, [first, second], 5 * GiB), [{ generation: first, usedBytes: 2 * GiB }, { generation: second, usedBytes: 3 * GiB }]);
});
