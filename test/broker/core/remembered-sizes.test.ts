/** Placements that name no size: cards are chosen by what was asked for the model before, and a card that can never hold it is not chosen twice. */
import t from 'tap';
import { all, GiB, MiB, only, plusTenth, stageOf } from './harness.js';

const [a, b, c] = ['GPU-a', 'GPU-b', 'GPU-c'] as const;

t.test('B101: a model that was placed by its name alone where it can never be is placed anew, where it can', async (test) => {
  const stage = stageOf([a, 8 * GiB], [b, 24 * GiB]);
  stage.resident(stage.session('holder'), 'idle', 20 * GiB, { device: b });
  const first = only(stage.place(stage.session(), 'big').effects, 'spawn');
  test.strictSame(first.devices, [a], 'nothing is known of it: the card with room');
  stage.ready(first.generation, { device: a });
  test.equal(only(stage.ask(first.generation, 'big', 10 * GiB, { device: a }).effects, 'deny').code, 'never_fits');
  const second = stage.place(stage.session(), 'big');
  test.equal(all(second.effects, 'placed').length, 0, 'not there again');
  test.strictSame(only(second.effects, 'spawn').devices, [b]);
  test.strictSame(only(stage.place(stage.session(), 'small', { estimateBytes: GiB }).effects, 'placed').devices, [a], 'the worker that it did not get serves others');
});

t.test('what was asked before does not refuse: where that fits nowhere, the word of who asks now counts', async (test) => {
  const stage = stageOf([a, 8 * GiB]);
  const worker = stage.worker({ device: a, model: 'big' });
  test.equal(only(stage.ask(worker, 'big', 20 * GiB, { device: a }).effects, 'deny').code, 'never_fits', 'a context too large, say');
  test.equal(only(stage.place(stage.session(), 'big', { estimateBytes: 2 * GiB }).effects, 'placed').worker, worker);
  test.equal(only(stage.ask(worker, 'big', 2 * GiB, { device: a }).effects, 'grant').chargedBytes, plusTenth(2 * GiB));
});

t.test('B101: a model over several cards is placed by what it needs on each, not by its mean', async (test) => {
  const stage = stageOf([a, 14 * GiB], [b, 24 * GiB], [c, 23 * GiB]);
  for (const [device, bytes] of [[b, 8 * GiB], [c, 10 * GiB]] as const) stage.resident(stage.session('holder'), `on ${device}`, bytes, { device });
  const first = only(stage.place(stage.session(), 'wide', { cards: 2, estimateBytes: 20 * GiB }).effects, 'spawn');
  test.strictSame(first.devices, [a, b], 'ten on each, by all that is known');
  stage.ready(first.generation, { device: a });
  const asked = stage.askGang(first.generation, 'wide', { [a]: 16 * GiB, [b]: 4 * GiB });
  test.strictSame(all(asked.effects, 'deny').map(({ code }) => code), ['never_fits', 'never_fits'], 'three quarters are to be on the first');
  test.strictSame(only(stage.place(stage.session(), 'wide', { cards: 2, estimateBytes: 20 * GiB }).effects, 'spawn').devices, [b, c]);
});

t.test('B106: what fits on a card that is lost alone is refused for that, and not for good', async (test) => {
  const stage = stageOf([a, 8 * GiB], [b, 24 * GiB]);
  const worker = stage.worker({ device: b, model: 'big' });
  stage.resident(worker, 'big', 10 * GiB, { device: b });
  stage.send({ type: 'card_lost', device: b, reason: 'GPU is lost' });
  const refused = only(stage.place(stage.session(), 'big').effects, 'deny');
  test.match(refused, { code: 'device_lost', details: { device: b } });
  test.match(only(stage.place(stage.session(), 'huge', { estimateBytes: 20 * GiB }).effects, 'deny'), { code: 'device_lost' });
  test.match(only(stage.place(stage.session(), 'vast', { estimateBytes: 30 * GiB }).effects, 'deny'), { code: 'never_fits' }, 'what fits on none of them does not wait for one');
  test.strictSame(only(stage.place(stage.session(), 'small', { estimateBytes: 100 * MiB }).effects, 'spawn').devices, [a]);
});
