/** Thrash: models that take turns on a card are named, with what would have to fit; what calls queue for is then left there longer. */
import t from 'tap';
import { explainRecords, restore, snapshot, type Effect } from '../../../broker/core/index.js';
import { noReloads, noteLoad, notePutAway, shareOfTime } from '../../../broker/core/thrash/reloads.js';
import { all, card0, GiB, only, plusTenth, Stage } from './harness.js';

const limits = { thrashWindowMs: 30_000, thrashBeginsPercent: 30, thrashEndsPercent: 10, thrashDampedPercent: 20 };

/** Two workers with a model each, of which one fits; `turn` has the one that is away loaded in 4 s, and rest for 2 s. */
class Pair {
  readonly stage = new Stage({ limits });
  readonly heard: Effect[] = [];
  private readonly workers: readonly [string, string];
  /** The lease of the one that is there. */
  lease = '';
  there = 1;

  constructor() {
    this.stage.card();
    this.workers = [this.stage.worker({ model: 'a', park: false }), this.stage.worker({ model: 'b', park: false })];
    this.stage.sample();
  }

  get worker(): string {
    return this.workers[this.there] ?? '';
  }

  /** The other one has its turn, on a card that is free or whose model is idle. */
  turn(): void {
    const { stage } = this;
    this.there = 1 - this.there;
    const asked = stage.ask(this.worker, this.there === 0 ? 'a' : 'b', 14 * GiB).effects;
    const [move] = all(asked, 'move');
    const { lease } = only(move === undefined ? asked : stage.obey(move), 'grant');
    stage.begin(this.worker, lease);
    this.pass(4_000);
    stage.load(this.worker, lease, 14 * GiB, { loadMs: 4_000 });
    stage.sample();
    this.lease = lease;
    this.pass(2_000);
  }

  pass(ms: number): void {
    this.heard.push(...this.stage.pass(ms));
  }

  told(name: string): Extract<Effect, { type: 'publish' }>[] {
    return all(this.heard, 'publish').filter((event) => event.name === name);
  }
}

t.test('two models that put each other away are named, with how often, for how long, and what is lacking for both', async (t) => {
  const pair = new Pair();
  for (let turn = 0; turn < 4; turn++) pair.turn();
  // Two first loads, then two of models that had made room: 8 of 30 s.
  t.strictSame(pair.told('thrashing'), []);
  t.equal(pair.stage.cardView().thrashing, null);
  pair.turn();
  const [event] = pair.told('thrashing');
  const neededBytes = 2 * plusTenth(14 * GiB);
  t.strictSame(event?.data, { device: card0, models: 'a (2 times, 8 s), b (once, 4 s)', shareOfTime: 0.4, windowMs: 30_000, neededBytes, capacityBytes: 24 * GiB });
  const view = pair.stage.cardView().thrashing;
  t.match(view, { shareOfTime: 0.4, models: [{ model: 'a', loads: 2 }, { model: 'b', loads: 1 }], neededBytes, capacityBytes: 24 * GiB });
  t.strictSame(view?.models.map(({ loadMs }) => Math.round(loadMs / 100)), [80, 40]);
  for (const model of ['a', 'b']) {
    const record = explainRecords(pair.stage.core, { model }).find(({ verdict }) => verdict === 'thrashing');
    t.match(record?.text, /thrashes: 40 % of the last 30 s went into loading again what had been put away for each other: a \(2 times, 8 s\), b \(once, 4 s\); 6\.8 GiB are lacking/);
  }
  t.equal(pair.stage.counter('thrashes'), 1);
  pair.turn();
  t.equal(pair.told('thrashing').length, 1, 'once, as long as it lasts');
  t.equal(pair.told('thrash_ended').length, 0);
  pair.pass(26_000);
  t.match(pair.told('thrash_ended'), [{ data: { device: card0 } }], 'below the lower share it is over');
  t.equal(pair.stage.cardView().thrashing, null);
});

t.test('first loads, what a program gave back, and what left after its time-to-live are no turns', async (t) => {
  const stage = new Stage({ limits: { ...limits, thrashBeginsPercent: 1, thrashEndsPercent: 1 } });
  stage.card();
  const heard: Effect[] = [];
  const worker = stage.worker({ engine: 'python', park: false });
  for (let round = 0; round < 3; round++) {
    for (const ttlMs of [null, 1_000]) {
      const lease = stage.granted(worker, 'a', 14 * GiB, { policy: { ttlMs } });
      stage.begin(worker, lease);
      heard.push(...stage.pass(4_000));
      stage.load(worker, lease, 14 * GiB);
      stage.sample();
      const later = stage.pass(1_500);
      heard.push(...later);
      const [move] = all(later, 'move');
      t.equal(move !== undefined, ttlMs !== null);
      if (move !== undefined) stage.obey(move);
      else {
        stage.take(worker, -14 * GiB);
        stage.release(worker, lease);
        stage.sample();
      }
    }
  }
  heard.push(...stage.pass(500));
  t.equal(stage.counter('loads'), 6);
  t.strictSame(all(heard, 'publish').filter(({ name }) => name === 'thrashing'), []);
});

t.test('on a thrashing card a model with a queue stays four times as long as its load took; one without goes as ever', async (t) => {
  const pair = new Pair();
  for (let turn = 0; turn < 5; turn++) pair.turn();
  const { stage } = pair;
  t.not(stage.cardView().thrashing, null);
  stage.use(pair.worker, pair.lease, 4, 1);
  const other = stage.session('holder');
  const asked = stage.ask(other, 'c', 12 * GiB);
  t.strictSame(all(asked.effects, 'move'), []);
  // Loaded 2 s ago in 4 s, it stays for 16.
  t.strictSame(all(stage.pass(13_500), 'move'), []);
  t.match(explainRecords(stage.core, { model: 'c' }).find(({ verdict }) => verdict === 'waiting'), { text: /a stays for a while, with calls in the queue, because the card thrashes/, victims: [{ model: 'a', passedOver: 'damped' }] });
  t.match(only(stage.pass(1_000), 'move'), { lease: pair.lease, when: 'drained' });
  const served = new Pair();
  for (let turn = 0; turn < 5; turn++) served.turn();
  served.stage.use(served.worker, served.lease, 4, 0);
  t.match(only(served.stage.ask(served.stage.session('holder'), 'c', 12 * GiB, { ageMs: 2_000 }).effects, 'move'), { lease: served.lease, when: 'drained' }, 'nobody waits for it any more');
  const idle = new Pair();
  for (let turn = 0; turn < 6; turn++) idle.turn();
  t.equal(idle.told('thrashing').length, 1, 'each of these turns put an idle model away at once');
});

t.test('damping keeps neither a higher class nor one that has waited as long as its class may', async (t) => {
  for (const options of [{ class: 'interactive', ageMs: 1_000 }, { ageMs: 60_000, deadlineMs: 120_000 }] as const) {
    const pair = new Pair();
    for (let turn = 0; turn < 5; turn++) pair.turn();
    pair.stage.use(pair.worker, pair.lease, 4, 1);
    const other = pair.stage.session('holder');
    t.match(only(pair.stage.ask(other, 'c', 12 * GiB, options).effects, 'move'), { lease: pair.lease, when: 'drained' });
  }
});

t.test('with thrashDampedPercent 100 it is named, and nothing is done', async (t) => {
  const pair = new Pair();
  Object.assign(pair.stage.core.options.limits, { thrashDampedPercent: 100 });
  for (let turn = 0; turn < 5; turn++) pair.turn();
  t.not(pair.stage.cardView().thrashing, null);
  pair.stage.use(pair.worker, pair.lease, 4, 1);
  const other = pair.stage.session('holder');
  t.match(only(pair.stage.ask(other, 'c', 12 * GiB, { ageMs: 2_000 }).effects, 'move'), { lease: pair.lease });
});

/** Two models have taken turns, the one that is there is used now and then, or in use; another loads beside it unless `loads` is false. */
function besideLoad({ turns = 3, loads = true, percent = 20, inUse = 0 } = {}): { readonly stage: Stage; readonly lease: string; readonly loader: string; readonly loading: string } {
  const pair = new Pair();
  const { stage } = pair;
  Object.assign(stage.core.options.limits, { thrashDampedPercent: percent });
  for (let turn = 0; turn < turns; turn++) pair.turn();
  for (let use = 0; use < 5; use++) {
    stage.use(pair.worker, pair.lease, 1);
    pair.pass(500);
    stage.use(pair.worker, pair.lease, 0);
    pair.pass(500);
  }
  stage.use(pair.worker, pair.lease, inUse);
  const loader = stage.session('holder');
  const loading = loads ? stage.granted(loader, 'd', 4 * GiB) : '';
  if (loads) stage.begin(loader, loading);
  return { stage, lease: pair.lease, loader, loading };
}

t.test('where models have come back, nobody is made to leave while others load before the wait is worth it', async (t) => {
  for (const [inUse, fromMs, toMs] of [[0, 1_000, 8_000], [1, 16_000, 16_000]] as const) {
    const { stage, lease } = besideLoad({ inUse });
    const { effects } = stage.ask(stage.session('holder'), 'c', 12 * GiB);
    t.strictSame(all(effects, 'move'), []);
    const waits = all(effects, 'wait');
    let waitedMs = 0;
    let moves = all(effects, 'move');
    for (; moves.length === 0 && waitedMs < 20_000; waitedMs += 500) {
      const later = stage.pass(500);
      waits.push(...all(later, 'wait'));
      moves = all(later, 'move');
    }
    t.ok(waits.some(({ reason }) => reason.startsWith('what could make room is likely to be wanted again soon; it stays until the wait is worth its reload: ')));
    t.match(moves, [{ lease, when: inUse > 0 ? 'drained' : 'now' }]);
    t.ok(waitedMs >= fromMs && waitedMs <= toMs, `after ${waitedMs} ms: ${inUse > 0 ? 'four times the load of 4 s' : 'by then it is not likely any more'}`);
  }
});

t.test('patience ends with the load that it waits for', async (t) => {
  const { stage, lease, loader, loading } = besideLoad();
  t.strictSame(all(stage.ask(stage.session('holder'), 'c', 12 * GiB).effects, 'move'), []);
  t.match(only(stage.load(loader, loading, 4 * GiB), 'move'), { lease });
});

t.test('no patience is asked of a higher class, of one overdue, where nothing loads, where nothing came back, or with thrashDampedPercent 100', async (t) => {
  const atOnce = [[{}, { class: 'interactive' }], [{ percent: 3, inUse: 1 }, { ageMs: 60_000, deadlineMs: 120_000 }], [{ loads: false }, {}], [{ turns: 2 }, {}], [{ percent: 100 }, {}]] as const;
  for (const [setting, options] of atOnce) {
    const { stage, lease } = besideLoad(setting);
    t.match(only(stage.ask(stage.session('holder'), 'c', 12 * GiB, options).effects, 'move'), { lease }, JSON.stringify([setting, options]));
  }
});

t.test('a snapshot remembers who takes turns', async (t) => {
  const pair = new Pair();
  for (let turn = 0; turn < 5; turn++) pair.turn();
  const again = restore(JSON.parse(JSON.stringify(snapshot(pair.stage.core))));
  t.strictSame(again.cards.get(card0)?.reloads, pair.stage.core.cards.get(card0)?.reloads);
});

t.test('loads side by side take their time once, and a model takes one turn each time that it was put away', async (t) => {
  const reloads = noReloads();
  for (const model of ['a', 'b', 'c']) notePutAway(reloads, model, 0);
  noteLoad(reloads, { model: 'a', fromUs: 10, toUs: 30, bytes: 1 }, 100);
  noteLoad(reloads, { model: 'b', fromUs: 20, toUs: 40, bytes: 1 }, 100);
  noteLoad(reloads, { model: 'a', fromUs: 40, toUs: 60, bytes: 1 }, 100);
  noteLoad(reloads, { model: 'c', fromUs: 5, toUs: 50, bytes: 1 }, 100);
  t.strictSame(reloads.loads.map(({ model }) => model), ['a', 'b', 'c']);
  t.equal(shareOfTime(reloads, 100, 100), 0.45, 'from 5 to 50');
  t.equal(shareOfTime(reloads, 130, 100), 0.2, 'of what began before the window, what is within it');
  notePutAway(reloads, 'd', 0);
  noteLoad(reloads, { model: 'd', fromUs: 90, toUs: 130, bytes: 1 }, 100);
  t.equal(reloads.loads.length, 3, 'away for longer than the window: no turn');
  notePutAway(reloads, 'e', 140);
  noteLoad(reloads, { model: 'e', fromUs: 130, toUs: 150, bytes: 1 }, 100);
  t.equal(reloads.loads.length, 3, 'begun before it was put away, by another process that had it as well: no turn');
  noteLoad(reloads, { model: 'e', fromUs: 150, toUs: 160, bytes: 1 }, 100);
  t.equal(reloads.loads.length, 4, 'and the one that brings it back is');
});
