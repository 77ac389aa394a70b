/** Peers that lie: no figure, order or id of one process ends the broker or takes the card from the others for good. */
import t from 'tap';
import { checkInvariants, step, type Effect } from '../../../broker/core/index.js';
import { Timers } from '../../../broker/core/timers.js';
import { classes, type LeasePart, type ModelState } from '../../../protocol/index.js';
import { all, card0, GiB, MiB, only, plusTenth, Stage, weights, type Happening } from './harness.js';

const hugeBytes = Number.MAX_SAFE_INTEGER;

function heldLeases(stage: Stage, holder: string, count: number): string[] {
  return Array.from({ length: count }, (_, number) => {
    const lease = stage.granted(holder, `m${String(number)}`, 1_000);
    stage.begin(holder, lease);
    return lease;
  });
}

t.test('a holder that claims more than its card has is not believed: counted, explained, cut down, and never ended', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const leases = heldLeases(stage, holder, 3);
  const told = leases.flatMap((lease) => [
    ...stage.report(holder, lease, 'resident', 8e15),
    ...stage.report(holder, lease, 'resident', 1_000, { parts: [weights(hugeBytes), weights(hugeBytes)] }),
    ...stage.report(holder, lease, 'resident', 1_000, { hostBytes: hugeBytes }),
  ]);
  stage.send({ type: 'floor_measured', generation: holder, device: card0, bytes: 2 ** 52 });
  stage.send({ type: 'heartbeat', generation: holder, reserved: [{ device: card0, bytes: hugeBytes }] });
  test.ok(stage.counter('claimsRefused') >= 9, 'each is counted');
  test.ok(all(told, 'explain').some(({ record }) => record.text.includes('is not believed')), 'and explained');
  test.equal(all(stage.effects, 'terminate').length, 0);
  test.ok(stage.chargedBytes() <= plusTenth(24 * GiB), 'all of it together is charged as one process that has the whole card');
  stage.exit(holder);
  stage.pass(5_000);
  test.equal(stage.chargedBytes(), 0, 'and gone with it');
  test.equal(stage.granted(stage.worker(), 'a', GiB).length > 0, true, 'others are granted again');
  test.end();
});

t.test('a worker that claims more than its card has is ended as broken, whichever claim it is', (test) => {
  const claims: readonly ((stage: Stage, worker: string, lease: string) => Effect[])[] = [
    (stage, worker, lease) => stage.report(worker, lease, 'resident', 24 * GiB + 1),
    (stage, worker, lease) => stage.report(worker, lease, 'loading', hugeBytes),
    (stage, worker, lease) => stage.report(worker, lease, 'resident', GiB, { parts: [weights(20 * GiB), { ...weights(5 * GiB), name: 'more' }] }),
    (stage, worker) => stage.send({ type: 'floor_measured', generation: worker, device: card0, bytes: 2 ** 52 }),
    (stage, worker) => stage.send({ type: 'heartbeat', generation: worker, reserved: [{ device: card0, bytes: 25 * GiB }] }),
    (stage, worker, lease) => stage.send({ type: 'models_announced', generation: worker, seq: 1, models: [announced('a', lease, hugeBytes)] }),
    (stage, worker) => stage.send({ type: 'models_announced', generation: worker, seq: 1, models: [announced('stranger', null, 25 * GiB)] }),
  ];
  for (const [number, claim] of claims.entries()) {
    const stage = new Stage();
    stage.card();
    const worker = stage.worker({ floorBytes: 200 * MiB });
    const lease = stage.granted(worker, 'a', GiB);
    stage.begin(worker, lease);
    test.match(only(claim(stage, worker, lease), 'terminate'), { generation: worker, cause: 'misbehaved' }, `claim ${String(number)}`);
    test.equal(stage.counter('claimsRefused'), 1);
    stage.exit(worker);
    stage.pass(2_000);
    test.equal(stage.chargedBytes(), 0);
    const next = stage.worker({ floorBytes: 200 * MiB });
    test.ok(stage.granted(next, 'b', 20 * GiB), 'the engine goes on');
  }
  test.end();
});

t.test('a command answered with more than the card has is no answer of a sound worker', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ park: true });
  stage.resident(worker, 'a', 10 * GiB, { parkable: true });
  const client = stage.session();
  const move = only(stage.send({ type: 'evict_requested', generation: client, request: 1, model: 'a', target: 'host', deadlineMs: 60_000 }), 'move');
  const effects = stage.answer(move, { kind: 'done', target: 'host', freedBytes: hugeBytes, residentBytes: hugeBytes, hostBytes: hugeBytes });
  test.match(only(effects, 'terminate'), { cause: 'misbehaved' });
  test.ok(all(stage.exit(worker), 'report_evicted').length + all(stage.pass(2_000), 'report_evicted').length === 1, 'the wish is met by its end');
  test.end();
});

t.test('a worker whose first word is a false floor is ended, and who waited for it is told', (test) => {
  const stage = new Stage();
  stage.card();
  const { effects } = stage.place(stage.session(), 'a');
  const { generation } = only(effects, 'spawn');
  const answers = stage.ready(generation, { floorBytes: 2 ** 40 });
  test.match(only(answers, 'terminate'), { cause: 'misbehaved' });
  test.match(only(answers, 'deny'), { code: 'spawn_failed' });
  stage.exit(generation);
  stage.pass(3_000);
  const again = stage.place(stage.session(), 'b');
  test.equal(all(again.effects, 'spawn').length, 1, 'nobody has learned from it');
  test.end();
});

t.test('a figure of a process that cannot be is nobody’s fault: of that reading the total alone counts, cut down to the card', (test) => {
  for (const bytes of [24 * GiB + 1, hugeBytes, Number.NaN, -1, 0.5]) {
    const stage = new Stage();
    stage.card();
    const worker = stage.worker({ floorBytes: GiB });
    const lease = stage.resident(worker, 'a', 4 * GiB);
    stage.samples = false;
    stage.release(worker, lease);
    const before = stage.chargedBytes();
    const read = (processes: number, strangers: number): Effect[] => {
      stage.nowUs += 10;
      return stage.send({ type: 'sampled', device: card0, takenAtUs: stage.nowUs, usedBytes: 30 * GiB, totalBytes: 30 * GiB, truth: 'nvml', processes: [{ generation: worker, usedBytes: processes }], strangers: [{ pid: 7, usedBytes: strangers }] });
    };
    for (const effects of [read(bytes, 0), read(5 * GiB, bytes)]) {
      test.strictSame(effects.filter(({ type }) => type === 'terminate'), [], String(bytes));
      test.equal(stage.chargedBytes(), before, 'nothing is charged for it, and no figure that is no count passes for nothing');
      test.match(stage.lease(lease), { state: 'releasing' });
      test.match(stage.cardView(), { sampledUsedBytes: 24 * GiB, missing: null });
    }
    test.equal(stage.counter('claimsRefused'), 2);
    stage.take(worker, -4 * GiB);
    stage.sample();
    test.equal(stage.lease(lease), undefined, 'the next reading tells');
  }
  test.end();
});

t.test('the sums of a card stay exact however many processes claim all of it, and however large it is', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: hugeBytes, confirms: 'none' });
  test.equal(stage.cardView().totalBytes, 2 ** 49, 'a larger card is used up to this');
  for (let number = 0; number < 40; number++) {
    const holder = stage.session('holder');
    const lease = stage.granted(holder, `m${String(number)}`, 0, { host: { neededBytes: 1, copyBytes: 0, peakBytes: 0 } });
    stage.begin(holder, lease);
    stage.report(holder, lease, 'resident', 2 ** 49);
  }
  test.ok(Number.isSafeInteger(stage.chargedBytes() * 4));
  test.end();
});

t.test('what one process cannot be charged with beside its own false claim is made good when that goes', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const honest = stage.granted(worker, 'honest', 8 * GiB);
  const liar = stage.resident(worker, 'liar', 8 * GiB);
  stage.samples = false;
  stage.report(worker, liar, 'resident', 24 * GiB);
  test.equal(stage.chargedBytes(), plusTenth(24 * GiB), 'no process is charged with more than the whole card and its headroom');
  stage.load(worker, honest, 9 * GiB);
  test.match(stage.lease(honest), { chargedBytes: plusTenth(8 * GiB), residentBytes: plusTenth(24 * GiB) - 24 * GiB }, 'there is no room for what it reports');
  stage.take(worker, -8 * GiB);
  stage.release(worker, liar);
  stage.sample();
  test.equal(stage.chargedBytes(), plusTenth(9 * GiB) + 9 * GiB - (plusTenth(24 * GiB) - 24 * GiB), 'what is there beyond that is taken for the liar’s at first');
  stage.sample();
  test.equal(stage.lease(liar), undefined);
  test.match(stage.lease(honest), { chargedBytes: plusTenth(9 * GiB), residentBytes: 9 * GiB });
  test.equal(stage.chargedBytes(), plusTenth(9 * GiB), 'and no more than that');
  test.end();
});

t.test('what was cut off is made good as well when the card turns out to be larger, and forgotten with its lease', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const first = stage.granted(worker, 'a', 8 * GiB);
  const second = stage.granted(worker, 'b', 8 * GiB);
  stage.samples = false;
  stage.load(worker, first, 20 * GiB);
  stage.load(worker, second, 10 * GiB);
  test.equal(stage.chargedBytes(), plusTenth(24 * GiB));
  stage.card(card0, { totalBytes: 48 * GiB });
  test.equal(stage.lease(second)?.chargedBytes, plusTenth(10 * GiB));
  test.equal(stage.chargedBytes(), plusTenth(30 * GiB));
  stage.exit(worker);
  test.equal(stage.cardView().leasedBytes, 0);
  test.end();
});

t.test('a model evicted while quarantined: who asked is answered when its bytes are seen gone, and nothing names the lease after it', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'm', 4 * GiB);
  const client = stage.session();
  const first = only(stage.send({ type: 'evict_requested', generation: client, request: 1, model: 'm', target: 'none', deadlineMs: 60_000 }), 'move');
  stage.answer(first, { kind: 'failed', code: 'move_failed', message: 'no', residentBytes: 4 * GiB });
  stage.pass(6_000);
  const second = only(stage.send({ type: 'evict_requested', generation: client, request: 3, model: 'm', target: 'none', deadlineMs: 60_000 }), 'move');
  stage.answer(second, { kind: 'failed', code: 'move_failed', message: 'no', residentBytes: 4 * GiB });
  test.equal(stage.lease(lease)?.state, 'quarantined');
  stage.send({ type: 'evict_requested', generation: client, request: 2, model: 'm', target: 'none', deadlineMs: 60_000 });
  stage.take(holder, -4 * GiB);
  const effects = stage.sample();
  test.match(only(effects, 'report_evicted'), { request: 2, freedBytes: 4 * GiB });
  test.equal(stage.lease(lease), undefined);
  test.equal(all(stage.pass(61_000), 'fail').length, 0, 'no deadline is left behind');
  test.end();
});

t.test('a floor that only its process vouches for is learned until the driver shows otherwise', (test) => {
  const stage = new Stage();
  stage.card();
  const liar = stage.worker({ floorBytes: null });
  stage.pass(3_000);
  stage.take(liar, 200 * MiB);
  const told = stage.send({ type: 'floor_measured', generation: liar, device: card0, bytes: 23 * GiB });
  test.ok(all(told, 'explain').some(({ record }) => record.text.includes('the driver shows 200.0 MiB')), 'the sample that follows corrects it, and says so');
  test.equal(stage.counter('floorsDoubted'), 1);
  stage.exit(liar);
  stage.pass(3_000);
  test.equal(all(stage.place(stage.session(), 'b', { estimateBytes: 10 * GiB }).effects, 'spawn').length, 1, 'the engine is still placed');
  test.end();
});

t.test('a floor whose process ends before it was measured is forgotten; one that cannot be measured is capped and fades', (test) => {
  const stage = new Stage();
  stage.card();
  const liar = stage.worker({ floorBytes: null });
  stage.samples = false;
  stage.send({ type: 'floor_measured', generation: liar, device: card0, bytes: 23 * GiB });
  stage.exit(liar);
  stage.samples = true;
  stage.sample();
  stage.pass(3_000);
  test.equal(all(stage.place(stage.session(), 'b', { estimateBytes: 10 * GiB }).effects, 'spawn').length, 1);

  const blind = new Stage();
  blind.card(card0, { confirms: 'total', floorBytes: null });
  const second = blind.worker({ floorBytes: null });
  blind.send({ type: 'floor_measured', generation: second, device: card0, bytes: 23 * GiB });
  blind.exit(second);
  blind.pass(10_000);
  const denied = only(blind.place(blind.session(), 'c', { estimateBytes: 15 * GiB }).effects, 'deny');
  test.equal(denied.code, 'never_fits');
  test.match(all(blind.effects, 'explain').at(-1)?.record.text, /28\.5 GiB needed, of which 12\.0 GiB is the floor of a llama process; at most 24\.0 GiB could be had there/);
  test.match(denied.details, { needBytes: String(12 * GiB + plusTenth(15 * GiB)) });
  for (let number = 0; number < 20; number++) {
    const honest = blind.worker({ floorBytes: 100 * MiB });
    blind.exit(honest);
    blind.pass(10_000);
  }
  test.equal(all(blind.place(blind.session(), 'c', { estimateBytes: 15 * GiB }).effects, 'spawn').length, 1, 'smaller words of others outlast it');
  test.end();
});

t.test('a timer that is set again for a moment already due falls due at the next look', (test) => {
  const timers = new Timers();
  timers.set('job', 'a', 5);
  let fired = 0;
  for (let timer = timers.takeDue(10); timer !== null && fired < 100; timer = timers.takeDue(10)) {
    fired++;
    timers.set(timer.kind, timer.key, 10);
  }
  test.equal(fired, 1);
  test.equal(timers.takeDue(11)?.key, 'a');
  test.end();
});

function announced(model: string, lease: string | null, residentBytes: number): ModelState {
  return { model, lease, device: card0, state: 'resident', residentBytes, hostBytes: 0, inFlight: 0, parkable: true, key: null } as unknown as ModelState;
}

/** Small and repeatable: the same seed, the same events. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

class Hostile {
  readonly stage = new Stage();
  readonly #random: () => number;
  readonly #living: string[] = [];
  #request = 1_000_000;

  constructor(seed: number) {
    this.#random = generator(seed);
    this.stage.card();
    this.stage.card('GPU-1', { confirms: 'total', totalBytes: 8 * GiB, floorBytes: null });
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  pick<T>(from: readonly T[], otherwise: T): T {
    return from[this.below(from.length)] ?? otherwise;
  }

  bytes(): number {
    return this.pick([0, 1, 1_000, 300 * MiB, GiB, 3 * GiB, 20 * GiB, 24 * GiB, 2 ** 40, 2 ** 52, 8e15, hugeBytes - 1, hugeBytes], 0);
  }

  device(): string {
    return this.pick([card0, card0, 'GPU-1', 'GPU-9'], card0);
  }

  lease(): string {
    const known = this.stage.view().leases.map((lease) => lease.lease);
    return this.below(10) === 0 ? this.pick(['boot-s0-l1', 'boot-w1-l2', 'boot-s1-l999', 'old-s1-boot-l1', 'nonsense', ''], '') : this.pick(known, 'boot-s0-l1');
  }

  parts(): LeasePart[] {
    return Array.from({ length: this.below(4) }, () => ({ name: `p${String(this.below(40))}`, kind: 'weights' as const, bytes: this.bytes(), upFront: this.below(2) === 0 }));
  }

  /** One event of a random process, its own or another's lease, right or wrong. */
  next(): Happening {
    const lease = this.lease();
    const owner = this.stage.lease(lease)?.generation ?? 'boot-s0';
    const generation = this.below(8) === 0 ? this.pick(this.#living, 'boot-s0') : owner;
    const asker = this.pick(this.#living, 'boot-s0');
    const request = this.below(20) === 0 ? this.#request : this.#request++;
    const seq = this.below(20) === 0 ? this.below(9) : this.#request;
    const number = this.bytes();
    const makes: readonly (() => Happening)[] = [
      () => ({ type: 'budget_requested', generation: asker, request, model: `m${String(this.below(6))}`, device: this.device(), lease: this.below(5) === 0 ? lease : null, parts: this.below(2) === 0 ? this.parts() : [weights(this.below(GiB))], peakBytes: this.below(5) === 0 ? number : 0, class: this.pick(classes, 'normal'), deadlineMs: this.below(20_000), ageMs: 0, parkable: this.below(2) === 0, profilesFreeMemory: this.below(5) === 0, source: 'measured', policy: { ttlMs: null, pinned: this.below(9) === 0, exclusive: this.below(5) === 0 }, gang: null }),
      () => ({ type: 'residency_reported', generation, request, lease, model: 'm1', seq, state: this.pick(['absent', 'loading', 'resident', 'resident', 'parking', 'parked', 'resuming', 'unloading'] as const, 'resident'), residentBytes: number, hostBytes: this.bytes(), parts: this.below(2) === 0 ? null : this.parts(), loadMs: this.below(2) === 0 ? null : number }),
      () => ({ type: 'load_begun', generation, lease }),
      () => ({ type: 'use_reported', generation, lease, seq, inFlight: this.below(3) === 0 ? number : 0, queued: 0 }),
      () => ({ type: 'resize_requested', generation, request, lease, parts: this.parts() }),
      () => ({ type: 'lease_released', generation, lease, cause: this.pick(['unused', 'unloaded', 'load_failed'] as const, 'unused'), failure: { code: this.pick(['out_of_memory', 'odd'], 'odd'), message: 'x' } }),
      () => ({ type: 'command_answered', generation, command: this.below(60), answer: this.below(2) === 0 ? { kind: 'done', target: this.pick(['host', 'none'] as const, 'none'), freedBytes: number, residentBytes: this.bytes(), hostBytes: this.bytes() } : { kind: 'failed', code: 'move_failed', message: 'no', residentBytes: number } }),
      () => ({ type: 'models_announced', generation, seq, models: Array.from({ length: this.below(4) }, () => announced(`m${String(this.below(8))}`, this.below(2) === 0 ? null : this.lease(), this.bytes())) }),
      () => ({ type: 'floor_measured', generation: asker, device: this.device(), bytes: number }),
      () => ({ type: 'heartbeat', generation: asker, reserved: [{ device: this.device(), bytes: number }] }),
      () => ({ type: 'evict_requested', generation: asker, request, model: `m${String(this.below(6))}`, target: this.pick(['host', 'none'] as const, 'none'), deadlineMs: this.below(9_000) }),
      () => ({ type: 'request_cancelled', generation: asker, request: this.#request - this.below(20) }),
      () => ({ type: 'recall_answered', generation, command: this.below(60), lease, begun: this.below(2) === 0 }),
      () => ({ type: 'sampled', device: this.device(), takenAtUs: this.stage.nowUs - this.below(2) * 500, usedBytes: number, totalBytes: Math.max(number, 24 * GiB), truth: 'nvml', processes: this.#living.map((one) => ({ generation: one, usedBytes: this.bytes() })) }),
      () => ({ type: 'kill_unconfirmed', generation: this.below(10) === 0 ? asker : 'boot-s0', reason: 'stuck' }),
      () => ({ type: 'ticked' }),
    ];
    return this.pick(makes, () => ({ type: 'ticked' }))();
  }

  /** Somebody comes or goes, or tells an event. */
  act(): void {
    const chance = this.below(40);
    if (chance === 0 || this.#living.length === 0) {
      this.#living.push(this.stage.session('holder'));
    } else if (chance === 1 && this.#living.length > 4) {
      const [gone = ''] = this.#living.splice(this.below(this.#living.length), 1);
      this.feed({ type: 'session_closed', generation: gone, reason: 'end of file' });
      this.feed({ type: 'process_exited', generation: gone, how: 'exit code 1' });
    } else if (chance === 2) {
      const { effects } = this.stage.place(this.pick(this.#living, ''), `m${String(this.below(6))}`, { engine: 'python', estimateBytes: this.bytes() });
      for (const { generation } of all(effects, 'spawn')) this.arrive(generation);
    } else {
      if (chance < 12) this.stage.nowUs += this.below(900_000);
      this.feed(this.next());
    }
  }

  arrive(generation: string): void {
    this.#living.push(generation);
    this.feed({ type: 'process_ready', generation, capabilities: { park: true, partial: true, embed: false, profilesFreeMemory: false }, floors: [{ device: card0, bytes: this.bytes() }] });
  }

  /** As the shell does: what is ended exits; the whole ledger is checked now and then, what was touched always. */
  feed(happening: Happening): void {
    this.stage.nowUs += 10;
    const effects = step(this.stage.core, { atUs: this.stage.nowUs, ...happening });
    if (this.below(4) === 0) checkInvariants(this.stage.core);
    for (const { generation } of all(effects, 'terminate')) {
      this.feed({ type: 'process_exited', generation, how: 'SIGTERM' });
      const place = this.#living.indexOf(generation);
      if (place >= 0) this.#living.splice(place, 1);
    }
    for (const { generation } of all(effects, 'spawn')) this.arrive(generation);
  }
}

t.test('no run of hostile events breaks an invariant', (test) => {
  for (let seed = 1; seed <= 12; seed++) {
    const hostile = new Hostile(seed);
    for (let number = 0; number < 500; number++) hostile.act();
    checkInvariants(hostile.stage.core);
    test.ok(hostile.stage.counter('claimsRefused') > 20, `seed ${String(seed)} was hostile`);
  }
  test.end();
});

t.test('what a driver spills is reserved as well: more than the card of that is no lie where it says so', (test) => {
  for (const spills of [true, false]) {
    const stage = new Stage();
    stage.card();
    const worker = stage.worker();
    stage.send({ type: 'sampled', device: card0, takenAtUs: stage.nowUs, usedBytes: 0, totalBytes: 24 * GiB, truth: 'nvml', processes: [], strangers: [], ...(spills ? { spilled: [] } : {}) });
    const effects = stage.send({ type: 'heartbeat', generation: worker, reserved: [{ device: card0, bytes: 25 * GiB }] });
    test.strictSame(all(effects, 'terminate').map(({ cause }) => cause), spills ? [] : ['misbehaved']);
    test.match(only(stage.send({ type: 'heartbeat', generation: stage.worker(), reserved: [{ device: card0, bytes: hugeBytes }] }), 'terminate'), { cause: 'misbehaved' }, 'no count of bytes in either case');
  }
  test.end();
});

t.test('a worker that announces a lease and twice says that it has no such one is taken down the ladder to its end; nothing is free on its word', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 20 * GiB);
  stage.pass(3_000);
  const unknown = { kind: 'failed', code: 'lease_unknown', message: 'not here', residentBytes: 0 } as const;
  const asker = stage.session('holder');
  const first = only(stage.ask(asker, 'b', 10 * GiB).effects, 'move');
  const chargedBytes = stage.chargedBytes();
  test.equal(only(stage.answer(first, unknown), 'list_models').generation, worker, 'asked what it has');
  stage.send({ type: 'models_announced', generation: worker, seq: 100, models: [announced('a', lease, 20 * GiB)] });
  test.equal(stage.chargedBytes(), chargedBytes);
  const rungs: string[] = [];
  let ended = 0;
  for (let turn = 0; turn < 4 && ended === 0; turn++) {
    const before = stage.effects.length;
    stage.pass(6_000);
    for (let move = all(stage.effects.slice(before), 'move').at(-1), answered = 0; move !== undefined && answered < 3; answered++) {
      rungs.push(move.target);
      const effects = stage.answer(move, unknown);
      ended += all(effects, 'terminate').filter(({ generation }) => generation === worker).length;
      move = all(effects, 'move').at(-1);
    }
  }
  test.equal(ended, 1, `after ${rungs.join(', ')}`);
  test.ok(rungs.length <= 3, 'it does not go in circles');
  test.equal(stage.chargedBytes(), chargedBytes, 'charged until its exit is seen');
  stage.exit(worker);
  stage.pass(2_000);
  test.equal(all(stage.effects, 'grant').filter(({ generation }) => generation === asker).length, 1);
  test.end();
});
