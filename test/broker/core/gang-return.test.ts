/** Gangs across a broker's end: they come back whole under one name, or what is left of them is put away; a closed card keeps all of a gang waiting. */
import t from 'tap';
import type { ModelState } from '../../../protocol/index.js';
import { all, context, GiB, only, plusTenth, Stage, weights } from './harness.js';

const [a, b, c] = ['GPU-a', 'GPU-b', 'GPU-c'] as const;
const worker = 'old-w1';
const single = 'old-w2';
const name = { gang: 'gang-3', size: 2 };

/** A new broker on these cards, told of a worker on a and b, and with `other` of one on a alone. */
function restarted(options: { readonly cards?: readonly string[]; readonly other?: boolean } = {}): Stage {
  const stage = new Stage({ limits: { reattachGraceMs: 30_000 } });
  for (const device of options.cards ?? [a, b]) stage.card(device);
  const recorded = options.other === true ? [single] : [worker];
  for (const generation of recorded) {
    stage.send({ type: 'process_recorded', generation, role: 'worker', name: generation, engine: 'llama', devices: generation === worker ? [a, b] : [a], floors: [] });
  }
  for (const device of options.cards ?? [a, b]) stage.sample(device);
  return stage;
}

function comesBack(stage: Stage, generation = worker): ReturnType<Stage['send']> {
  stage.send({ type: 'process_resumed', generation });
  return stage.send({ type: 'process_ready', generation, capabilities: { park: true, partial: false, embed: false, profilesFreeMemory: false }, floors: [] });
}

function on(device: string, lease: string, bytes: number, changes: Partial<ModelState> = {}): ModelState {
  const policy = { ttlMs: null, pinned: false, exclusive: false };
  return {
    model: 'wide', lease, device, state: 'resident', residentBytes: bytes, hostBytes: 0, inFlight: 0, parkable: false,
    terms: { chargedBytes: plusTenth(bytes), parts: [weights(bytes)], class: 'normal', policy, gang: name }, ...changes,
  };
}

function announces(stage: Stage, models: readonly ModelState[], generation = worker): ReturnType<Stage['send']> {
  return stage.send({ type: 'models_announced', generation, seq: 1, models });
}

function gangs(stage: Stage): readonly (string | null | undefined)[] {
  return ['old-w1-l7', 'old-w1-l8'].map((lease) => stage.lease(lease)?.gang);
}

/** Back, with the whole gang: 8 GiB on a, 4 GiB on b. */
function whole(): Stage {
  const stage = restarted();
  stage.take(worker, 8 * GiB, a);
  stage.take(worker, 4 * GiB, b);
  comesBack(stage);
  announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]);
  return stage;
}

t.test('R125: a gang that comes back whole is one again: charged on each card, grown and put away together', async (test) => {
  const stage = whole();
  test.match(stage.lease('old-w1-l7'), { device: a, chargedBytes: plusTenth(8 * GiB), state: 'resident' });
  test.match(stage.lease('old-w1-l8'), { device: b, chargedBytes: plusTenth(4 * GiB), state: 'resident' });
  test.strictSame(gangs(stage), ['old-w1 gang-3', 'old-w1 gang-3']);
  test.strictSame([stage.cardView(a).closed, stage.cardView(b).closed], [null, null]);

  const alone = stage.ask(worker, 'wide', GiB, { device: a, lease: 'old-w1-l7', parts: [context(GiB)] });
  test.equal(only(alone.effects, 'deny').code, 'gang_broken', 'one of them alone does not grow');
  const grown = stage.askGang(worker, 'wide', { [a]: GiB, [b]: GiB }, { name: 'gang-4', leases: { [a]: 'old-w1-l7', [b]: 'old-w1-l8' } });
  test.strictSame(all(grown.effects, 'grant').map(({ lease }) => lease), ['old-w1-l7', 'old-w1-l8']);

  const back = stage.pass(60_000);
  test.equal(all(back, 'move').length, 0, 'nothing of it is missing');
  const holder = stage.session('holder');
  const evicting = stage.ask(holder, 'sums', 20 * GiB, { device: b });
  test.strictSame([...new Set(all([...evicting.effects, ...stage.pass(60_000)], 'move').map(({ lease }) => lease))].sort(), ['old-w1-l7', 'old-w1-l8'], 'who needs one of its cards gets it to leave both');
});

t.test('R125: a gang that comes back in part is of no use: what is left of it is charged, said and unloaded', async (test) => {
  const stage = restarted();
  stage.take(worker, 8 * GiB, a);
  comesBack(stage);
  announces(stage, [on(a, 'old-w1-l7', 8 * GiB, { inFlight: 0 })]);
  test.match(stage.lease('old-w1-l7'), { chargedBytes: plusTenth(8 * GiB), state: 'resident' });
  const moves = all(stage.pass(20_000), 'move');
  test.match(moves, [{ lease: 'old-w1-l7', target: 'none', when: 'drained' }]);
  test.match(moves[0]?.reason, /the rest of its gang is gone/);
  test.match(stage.effects.filter((effect) => effect.type === 'explain' && effect.record.verdict === 'evicting'), [{ record: { text: /the rest of its gang is gone/ } }]);
});

t.test('a connection that was lost alone leaves a gang as it was, and one that lost a member meanwhile in pieces', async (test) => {
  const stage = whole();
  const lost = (): ReturnType<Stage['send']> => stage.send({ type: 'session_closed', generation: worker, reason: 'connection reset' });
  lost();
  comesBack(stage);
  announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]);
  test.strictSame(all(stage.pass(20_000), 'move'), []);
  lost();
  stage.take(worker, -4 * GiB, b);
  comesBack(stage);
  announces(stage, [on(a, 'old-w1-l7', 8 * GiB)]);
  stage.sample(b);
  test.match(all(stage.pass(20_000), 'move'), [{ lease: 'old-w1-l7', target: 'none' }]);
});

t.test('a closed card keeps all of a gang waiting, and the gang keeps nobody waiting elsewhere', async (test) => {
  const stage = restarted({ other: true });
  const wide = stage.session('holder');
  const asked = stage.askGang(wide, 'wide', { [a]: GiB, [b]: 20 * GiB }, { deadlineMs: 600_000 });
  test.strictSame(all(asked.effects, 'grant'), [], 'nothing is granted on the card that is open');
  test.match(all(asked.effects, 'wait').map(({ reason }) => reason), [/closed to grants until old-w2/, /another of its cards/]);
  const waited = stage.pass(20_000);
  test.strictSame(all(waited, 'grant'), []);
  test.equal(stage.cardView(b).holdBytes, 0, 'not even of the oldest anything is kept there');
  const other = stage.ask(stage.session('holder'), 'sums', GiB, { device: b });
  test.equal(all(other.effects, 'grant').length, 1, 'who wants the open card alone has it');
  comesBack(stage, single);
  const opened = announces(stage, [], single);
  test.strictSame(all(opened, 'grant').map(({ device }) => device), [a, b], 'both with the word that was missing');
});

t.test('a placement over two cards waits for a worker on two that may have the model, and not for one on another number', async (test) => {
  const stage = restarted({ cards: [a, b, c] });
  const client = stage.session();
  const asked = stage.place(client, 'wide', { cards: 2, estimateBytes: 2 * GiB });
  test.equal(all(asked.effects, 'spawn').length, 0, 'no second copy is loaded');
  const narrow = stage.place(stage.session(), 'tales', { estimateBytes: GiB });
  test.strictSame(only(narrow.effects, 'spawn').devices, [c], 'one card does not wait for a worker over two');
  stage.take(worker, 8 * GiB, a);
  stage.take(worker, 4 * GiB, b);
  comesBack(stage);
  test.match(all(announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]), 'placed'), [{ worker, devices: [a, b] }]);
});

t.test('a request over a connection that is new may name a lease that is still to be told, and is judged when it has been', async (test) => {
  const stage = restarted();
  stage.take(worker, 8 * GiB, a);
  stage.take(worker, 4 * GiB, b);
  comesBack(stage);
  const alone = stage.ask(worker, 'wide', GiB, { device: a, lease: 'old-w1-l7', parts: [context(GiB)] });
  test.equal(all(alone.effects, 'grant').length + all(alone.effects, 'deny').length, 0);
  test.match(all(announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]), 'deny'), [{ request: alone.request, code: 'gang_broken' }]);
});

t.test('B106: a card that the new broker does not find is closed when it appears, until who was there has told of it; till then its workers are given the grace of a lost card', async (t) => {
  await t.test('found in time: asked again, and the gang is whole', async (test) => {
    const stage = restarted({ cards: [a] });
    stage.take(worker, 8 * GiB, a);
    comesBack(stage);
    announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]);
    test.match(stage.lease('old-w1-l7'), { state: 'resident' });
    test.equal(all(stage.place(stage.session(), 'other', { estimateBytes: GiB }).effects, 'placed').length, 0, 'nobody is placed on it');
    stage.card(b);
    test.equal(only(stage.effects.slice(-4), 'list_models').generation, worker);
    test.strictSame(stage.cardView(b).closed?.waitsFor, [worker]);
    test.equal(all(stage.ask(stage.session('holder'), 'sums', GiB, { device: b, deadlineMs: 600_000 }).effects, 'grant').length, 0);
    stage.take(worker, 4 * GiB, b);
    const told = announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]);
    test.equal(all([...told, ...stage.sample(b)], 'grant').length, 1);
    test.strictSame(gangs(stage), ['old-w1 gang-3', 'old-w1 gang-3']);
  });
  await t.test('not found: ended, as one on a lost card is', async (test) => {
    const stage = restarted({ cards: [a] });
    comesBack(stage);
    announces(stage, []);
    test.strictSame(all(stage.pass(9_000), 'terminate'), []);
    test.match(all(stage.pass(2_000), 'terminate'), [{ generation: worker, cause: 'card_lost' }]);
  });
});

t.test('a gang of which a card is found late is whole again then: nothing of it is asked back', async (test) => {
  for (const isFound of [true, false]) {
    const stage = restarted({ cards: [a] });
    stage.take(worker, 8 * GiB, a);
    comesBack(stage);
    announces(stage, [on(a, 'old-w1-l7', 8 * GiB)]);
    if (isFound) {
      stage.card(b);
      stage.take(worker, 4 * GiB, b);
      stage.sample(b);
      announces(stage, [on(a, 'old-w1-l7', 8 * GiB), on(b, 'old-w1-l8', 4 * GiB)]);
    }
    const moves = all(stage.pass(20_000), 'move');
    test.strictSame(moves.map(({ lease, target }) => [lease, target]).slice(0, 1), isFound ? [] : [['old-w1-l7', 'none']]);
  }
});
