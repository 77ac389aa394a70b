// B82 and determinism: random lives of a card, the whole ledger checked after each step, snapshots that go on exactly where they were taken.
import t from 'tap';
import { checkInvariants, ledgerView, restore, snapshot, step, type CoreEvent, type Effect } from '../../../broker/core/index.js';
import { all, card0, GiB, Stage, weights, type Happening } from './harness.js';

/** A small seeded generator: the same seed is the same life. */
function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    const mixed = Math.imul(state ^ (state >>> 13), 0x297a2d39);
    return ((mixed ^ (mixed >>> 16)) >>> 0) % below;
  };
}

interface Life {
  readonly stage: Stage;
  readonly log: CoreEvent[];
  readonly holders: string[];
  readonly outcomes: { grants: number; denials: number; moves: number };
}

/** One holder's model: requested, granted, loaded, evicted, lost, by chance. */
class Actor {
  lease: string | null = null;
  request: number | null = null;
  loaded = false;
  takenBytes = 0;

  constructor(readonly holder: string, readonly model: string, readonly bytes: number) {}
}

function live(seed: number, steps: number): Life {
  const random = randomOf(seed);
  const stage = new Stage({ limits: { requestDeadlineMs: 30_000 } });
  const log: CoreEvent[] = [];
  const send = stage.send.bind(stage);
  stage.send = (happening: Happening) => {
    log.push({ atUs: stage.nowUs + 10, ...happening });
    return send(happening);
  };
  stage.card(card0, { confirms: seed % 3 === 0 ? 'total' : 'process' });
  const outcomes = { grants: 0, denials: 0, moves: 0 };
  let actors = [newActor(stage, random, 0), newActor(stage, random, 1), newActor(stage, random, 2), newActor(stage, random, 3)];
  const react = (effects: readonly Effect[]): void => {
    for (const effect of effects) {
      const actor = actors.find((one) => 'generation' in effect && one.holder === effect.generation);
      if (effect.type === 'grant') outcomes.grants++;
      if (effect.type === 'deny') outcomes.denials++;
      if (actor === undefined) continue;
      if (effect.type === 'grant') Object.assign(actor, { lease: effect.lease, request: null });
      if (effect.type === 'deny' && effect.request === actor.request) actor.request = null;
      if (effect.type === 'move') {
        outcomes.moves++;
        react(obey(stage, random, actor, effect));
      }
    }
  };
  for (let index = 0; index < steps; index++) {
    const actor = actors[random(actors.length)]!;
    const choice = random(100);
    if (choice < 25) react(stage.pass(250));
    else if (choice < 45) react(ask(stage, random, actor));
    else if (choice < 50) react(cancel(stage, actor));
    else if (choice < 80) react(advance(stage, random, actor));
    else if (choice < 90) react(stage.sample());
    else if (choice < 97) react(use(stage, random, actor));
    else if (choice < 99) stage.truth().foreignBytes = random(6) * GiB;
    else {
      react(stage.exit(actor.holder));
      actors = actors.map((one) => (one === actor ? newActor(stage, random, index) : one));
    }
  }
  return { stage, log, holders: actors.map((actor) => actor.holder), outcomes };
}

function newActor(stage: Stage, random: (below: number) => number, index: number): Actor {
  return new Actor(stage.session('holder'), `m${String(index % 7)}`, (1 + random(14)) * GiB);
}

function ask(stage: Stage, random: (below: number) => number, actor: Actor): Effect[] {
  if (actor.lease !== null || actor.request !== null) return [];
  const asked = stage.ask(actor.holder, actor.model, actor.bytes, { class: (['interactive', 'normal', 'background'] as const)[random(3)]!, deadlineMs: 1_000 + random(20_000) });
  actor.request = asked.request;
  return asked.effects;
}

function cancel(stage: Stage, actor: Actor): Effect[] {
  if (actor.request === null) return [];
  const request = actor.request;
  actor.request = null;
  return stage.send({ type: 'request_cancelled', generation: actor.holder, request });
}

function advance(stage: Stage, random: (below: number) => number, actor: Actor): Effect[] {
  const { lease } = actor;
  if (lease === null) return [];
  if (!actor.loaded && random(4) > 0) {
    actor.loaded = true;
    actor.takenBytes = actor.bytes;
    return stage.load(actor.holder, lease, actor.bytes);
  }
  const failed = !actor.loaded && random(2) === 0;
  stage.take(actor.holder, -actor.takenBytes);
  Object.assign(actor, { lease: null, loaded: false, takenBytes: 0 });
  if (failed) {
    const begun = stage.begin(actor.holder, lease);
    return [...begun, ...stage.release(actor.holder, lease, 'load_failed', { code: random(2) === 0 ? 'out_of_memory' : 'load_failed', message: 'by chance' })];
  }
  return stage.release(actor.holder, lease, 'unloaded');
}

function use(stage: Stage, random: (below: number) => number, actor: Actor): Effect[] {
  return actor.lease === null || !actor.loaded ? [] : stage.use(actor.holder, actor.lease, random(2), random(2));
}

/** Answers a command well, busy, falsely or not at all. */
function obey(stage: Stage, random: (below: number) => number, actor: Actor, move: Extract<Effect, { type: 'move' }>): Effect[] {
  const choice = random(10);
  if (choice === 0) return [];
  if (choice === 1) return stage.answer(move, { kind: 'busy', inFlight: 1 });
  if (choice === 2) return stage.answer(move, { kind: 'failed', code: 'command_expired', message: 'late', residentBytes: null });
  if (actor.lease !== move.lease) return stage.answer(move, { kind: 'failed', code: 'lease_unknown', message: 'not here', residentBytes: 0 });
  stage.take(actor.holder, -actor.takenBytes);
  const freedBytes = actor.takenBytes;
  Object.assign(actor, { lease: null, loaded: false, takenBytes: 0 });
  return stage.answer(move, { kind: 'done', target: 'none', freedBytes, residentBytes: 0, hostBytes: 0 });
}

t.test('B82: in random lives no invariant breaks, and once all is idle and free the head of the queue is granted', (test) => {
  let steps = 0;
  const outcomes = { grants: 0, denials: 0, moves: 0 };
  for (let seed = 1; seed <= 110; seed++) {
    const life = live(seed, 800);
    steps += life.log.length;
    for (const name of ['grants', 'denials', 'moves'] as const) outcomes[name] += life.outcomes[name];
    const { stage } = life;
    for (const holder of life.holders) stage.exit(holder);
    stage.truth().foreignBytes = 0;
    stage.pass(35_000);
    stage.sample();
    const asked = stage.ask(stage.session('holder'), 'last', 20 * GiB);
    const effects = [...asked.effects, ...stage.pass(1_000)];
    if (all(effects, 'grant').length !== 1) test.fail(`seed ${String(seed)}: the head waits for ${JSON.stringify(stage.view().waiting)} on ${JSON.stringify(stage.cardView())}`);
    if (stage.counter('oldestWaiterMs') !== 0) test.fail(`seed ${String(seed)}: somebody still waits`);
  }
  test.ok(steps > 100_000, `${String(steps)} steps`);
  test.ok(outcomes.grants > 1_000 && outcomes.denials > 50 && outcomes.moves > 100, JSON.stringify(outcomes));
  test.end();
});

t.test('the same events give the same effects, and a snapshot goes on exactly where it was taken', (test) => {
  const { log } = live(4, 600);
  const first = new Stage({ limits: { requestDeadlineMs: 30_000 } }).core;
  let second = new Stage({ limits: { requestDeadlineMs: 30_000 } }).core;
  for (const [index, event] of log.entries()) {
    if (index % 97 === 0) second = restore(JSON.parse(JSON.stringify(snapshot(second))));
    const one = JSON.stringify(step(first, event));
    const two = JSON.stringify(step(second, event));
    if (one !== two) {
      test.equal(two, one, `event ${String(index)}`);
      break;
    }
    if (index % 31 === 0) checkInvariants(second);
  }
  test.same(ledgerView(second, second.nowUs), ledgerView(first, first.nowUs));
  test.throws(() => restore({ version: 0 }), { code: 'input_invalid' });
  test.end();
});

t.test('a broken ledger is found: the whole check names the invariant and throws', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  stage.resident(holder, 'a', GiB);
  const spoiled = restore(JSON.parse(JSON.stringify(snapshot(stage.core))));
  spoiled.cards.get(card0)!.charged.lease += 1;
  test.throws(() => checkInvariants(spoiled), { code: 'invariant_broken' });
  test.throws(() => step(spoiled, { type: 'sampled', atUs: stage.nowUs + 1_000, device: card0, takenAtUs: stage.nowUs + 500, usedBytes: GiB, totalBytes: 24 * GiB, truth: 'nvml', processes: [] }), { code: 'invariant_broken' }, 'and so does every step that touches it');
  test.end();
});

t.test('twenty thousand requests that come and go leave no growth behind', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const sizes = (): number[] => [stage.core.leases.size, stage.core.waiters.size, stage.core.timers.size, stage.core.commands.size, stage.core.backoffs.size, stage.core.cards.get(card0)!.unsampled.size];
  const round = (): void => {
    const lease = stage.granted(holder, 'm', GiB, { parts: [weights(GiB)] });
    stage.release(holder, lease, 'unused');
  };
  for (let index = 0; index < 100; index++) round();
  const before = sizes();
  for (let index = 0; index < 20_000; index++) round();
  test.same(sizes(), before);
  test.end();
});
