/** Whole workers as victims: when models alone do not suffice their floors come free, and nobody waits for those for ever. */
import t from 'tap';
import type { Effect } from '../../../broker/core/index.js';
import { all, card0, GiB, host0, only, plusTenth, Stage } from './harness.js';

/** A card of 12 GiB with a worker of which 2 are the floor and 8 a model; `asker` is a program, which pays no floor. */
class Scene {
  readonly stage = new Stage();
  readonly worker: string;
  readonly asker: string;
  readonly lease: string;

  constructor(options: { readonly parkable?: boolean; readonly totalBytes?: number } = {}) {
    const { stage } = this;
    stage.card(card0, { totalBytes: options.totalBytes ?? 12 * GiB });
    this.worker = stage.worker({ engine: 'python', model: 'a', floorBytes: 2 * GiB });
    this.lease = stage.resident(this.worker, 'a', 8 * GiB, { parkable: options.parkable ?? true });
    this.asker = stage.session('holder');
    stage.pass(5_000);
    stage.sample();
  }

  /** Asks for 10 GiB, 11 with the headroom: more than there is beside the floor. */
  ask(ageMs = 0): Effect[] {
    return this.stage.ask(this.asker, 'b', 10 * GiB, { ageMs, deadlineMs: 600_000 }).effects;
  }
}

t.test('a worker whose floor is needed gives up all that it hosts: nothing is parked, and it ends', async (t) => {
  const { stage, worker, asker, lease, ask } = bound(new Scene());
  const move = only(ask(), 'move');
  t.match(move, { lease, target: 'none', when: 'now' });
  const ended = stage.obey(move);
  t.match(only(ended, 'terminate'), { generation: worker, cause: 'evicted' });
  t.match(only(stage.exit(worker), 'grant'), { generation: asker, chargedBytes: plusTenth(10 * GiB) });
});

t.test('where a model is enough its worker stays, and the model is parked', async (t) => {
  const { stage, lease } = bound(new Scene());
  const move = only(stage.ask(stage.session('holder'), 'b', 9 * GiB).effects, 'move');
  t.match(move, { lease, target: 'host' });
  t.strictSame(all(stage.obey(move), 'terminate'), []);
});

t.test('models that are parked go with their worker, pinned ones keep it', async (t) => {
  for (const pinned of [false, true]) {
    const { stage, worker, lease, ask } = bound(new Scene());
    stage.obey(only(stage.ask(stage.session('holder'), 'c', 9 * GiB, { deadlineMs: 1_000 }).effects, 'move'));
    const other = stage.view().leases.find(({ model }) => model === 'c');
    stage.release(other?.generation ?? '', other?.lease ?? '');
    t.match(stage.lease(lease), { state: 'parked', chargedBytes: 0 });
    stage.send({ type: 'pin_requested', generation: stage.session(), request: 1, model: 'a', pinned });
    const asked = ask();
    if (pinned) {
      t.strictSame(all(asked, 'move'), []);
      continue;
    }
    const move = only(asked, 'move');
    t.match(move, { lease, target: 'none', when: 'now' });
    t.match(only(stage.answer(move, { kind: 'done', target: 'none', freedBytes: 0, residentBytes: 0, hostBytes: 0 }), 'terminate'), { generation: worker, cause: 'evicted' });
  }
});

t.test('while a worker is on its way out nobody else leaves for its floor', async (t) => {
  const { stage, worker, lease } = bound(new Scene({ totalBytes: 16 * GiB }));
  const other = stage.worker({ engine: 'python-b', model: 'small' });
  const small = stage.resident(other, 'small', 2 * GiB);
  stage.use(other, small, 1);
  stage.pass(5_000);
  const move = only(stage.ask(stage.session('holder'), 'b', 12.5 * GiB, { deadlineMs: 600_000 }).effects, 'move');
  t.match(move, { lease, target: 'none' });
  // Idle by now, it would be enough in place of the floor.
  t.strictSame(all([...stage.use(other, small, 0), ...stage.pass(2_000)], 'move'), []);
  t.match(only(stage.obey(move), 'terminate'), { generation: worker });
});

t.test('a busy model whose worker must end has its door shut once its class may, and is not parked then', async (t) => {
  const { stage, worker, asker, lease, ask } = bound(new Scene());
  stage.use(worker, lease, 1);
  t.strictSame(all(ask(), 'move'), []);
  const move = only(stage.pass(2_500), 'move');
  t.match(move, { lease, target: 'none', when: 'drained' });
  stage.answer(move, { kind: 'draining', inFlight: 1 });
  t.strictSame(all(stage.pass(10_000), 'terminate'), [], 'no call is cut');
  stage.use(worker, lease, 0);
  t.match(only(stage.obey(move), 'terminate'), { generation: worker, cause: 'evicted' });
  t.match(only(stage.exit(worker), 'grant'), { generation: asker });
});

t.test('what only waits behind one that has waited as long as its class may keeps no worker alive', async (t) => {
  const { stage, worker, asker, ask } = bound(new Scene());
  const move = only(ask(), 'move');
  const behind = stage.ask(worker, 'c', 3 * GiB, { deadlineMs: 600_000 });
  t.match(only(behind.effects, 'wait'), { reason: /an earlier request needs the room/ });
  t.strictSame(all([...stage.obey(move), ...stage.pass(50_000)], 'terminate'), [], 'before that it does');
  const ended = stage.pass(10_000);
  t.match(only(ended, 'terminate'), { generation: worker, cause: 'evicted' });
  t.match(only(ended, 'deny'), { request: behind.request, code: 'shutting_down' });
  t.match(only(stage.exit(worker), 'grant'), { generation: asker });
});

t.test('what is older, and waits for something else, keeps its worker alive, however long others wait', async (t) => {
  for (const isOlder of [true, false]) {
    const { stage, worker, lease, ask } = bound(new Scene());
    stage.memory(8 * GiB);
    stage.truth(host0).foreignBytes = 7 * GiB;
    stage.sample(host0);
    const asked = stage.ask(worker, 'c', GiB, { ageMs: isOlder ? 100_000 : 0, deadlineMs: 600_000, host: { neededBytes: 4 * GiB } });
    t.match(only(asked.effects, 'wait'), { reason: /machine's memory/ });
    const moves = all(ask(70_000), 'move');
    t.match(moves, isOlder ? [] : [{ lease, target: 'none' }]);
    t.equal(moves.length, isOlder ? 0 : 1);
  }
});

t.test('what does not fit beside the floor of its own worker never does, and is told so at once', async (t) => {
  const { stage, worker } = bound(new Scene());
  const never = only(stage.ask(worker, 'c', 9.5 * GiB).effects, 'deny');
  t.match(never, { code: 'never_fits', details: { needBytes: String(plusTenth(9.5 * GiB) + 2 * GiB), mostBytes: String(12 * GiB) } });
  t.equal(all(stage.ask(worker, 'd', 9 * GiB).effects, 'deny').length, 0, 'beside it there is room for 9.9 GiB');
  const asked = stage.ask(stage.session('holder'), 'e', 9.5 * GiB);
  t.strictSame(all(asked.effects, 'deny'), [], 'what a program has of its own it may give back');
});

/** The scene with `ask` for use without it. */
function bound(scene: Scene): Pick<Scene, 'stage' | 'worker' | 'asker' | 'lease' | 'ask'> {
  const { stage, worker, asker, lease } = scene;
  return { stage, worker, asker, lease, ask: (ageMs) => scene.ask(ageMs) };
}
