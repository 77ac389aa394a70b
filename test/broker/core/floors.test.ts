// What a process costs before any model: taken to be so much, then said or seen.
import t from 'tap';
import { all, card0, GiB, MiB, only, Stage } from './harness.js';

const taken = 768 * MiB;

t.test('R9: a process that nobody could measure yet is charged what its engine is taken to cost, from before it is there', (test) => {
  const stage = new Stage({ llamaFloorBytes: taken });
  stage.card(card0, { totalBytes: 2 * GiB, floorBytes: null });
  stage.card('CPU-0', { kind: 'cpu', totalBytes: 0, confirms: 'none', floorBytes: null });
  stage.card('SIM-0', { kind: 'simulated', floorBytes: 0 });
  const client = stage.session();
  const spawned = only(stage.place(client, 'a', { device: card0 }).effects, 'spawn');
  test.equal(stage.cardView().floorBytes, taken);
  for (const device of ['CPU-0', 'SIM-0']) {
    test.equal(all(stage.place(client, `on ${device}`, { device }).effects, 'spawn').length, 1);
    test.equal(stage.cardView(device).floorBytes, 0, `${device} is none that it could be unknown of`);
  }
  const second = only(stage.place(client, 'b', { device: card0 }).effects, 'spawn');
  test.equal(stage.cardView().floorBytes, 2 * taken, 'two are room for, by what they are taken to cost');
  test.equal(all(stage.place(client, 'c', { device: card0 }).effects, 'spawn').length, 0, 'a third waits');
  stage.ready(spawned.generation, { floorBytes: 600 * MiB });
  test.equal(stage.cardView().floorBytes, 600 * MiB + taken, 'its own word replaces it at once');
  stage.ready(second.generation, { floorBytes: 600 * MiB });
  test.equal(stage.cardView().floorBytes, 2 * 600 * MiB + taken, 'and leaves room for the third, which may take more for a moment than it leaves');
  test.end();
});

t.test('a worker that says nothing costs what the driver shows of it; where that shows nothing, what it is taken to cost', (test) => {
  const stage = new Stage({ llamaFloorBytes: taken });
  stage.card(card0, { floorBytes: null });
  const silent = only(stage.place(stage.session(), 'a', { device: card0 }).effects, 'spawn').generation;
  stage.take(silent, 300 * MiB);
  stage.sample();
  test.match(stage.cardView(), { floorBytes: taken, residueBytes: 0, foreignBytes: 0 }, 'while it starts more may come');
  stage.take(silent, 100 * MiB);
  stage.ready(silent, { floorBytes: null });
  stage.sample();
  test.match(stage.cardView(), { floorBytes: 400 * MiB, residueBytes: 0, foreignBytes: 0 });
  stage.place(stage.session(), 'b', { device: card0 });
  test.equal(stage.cardView().floorBytes, 400 * MiB + taken, 'and the next is charged what a start may take');

  const blind = new Stage({ llamaFloorBytes: taken });
  blind.card(card0, { confirms: 'total', floorBytes: null });
  const worker = blind.worker({ floorBytes: null, device: card0 });
  blind.take(worker, 400 * MiB);
  blind.sample();
  test.match(blind.cardView(), { floorBytes: taken, foreignBytes: 0 });
  test.end();
});

t.test('all that a starting process takes, with its children, is its floor at once, and nobody takes it for a stranger', (test) => {
  const stage = new Stage();
  stage.card(card0, { floorBytes: null });
  const starting = only(stage.place(stage.session(), 'a', { device: card0 }).effects, 'spawn').generation;
  for (const bytes of [100, 200, 300]) {
    stage.take(starting, 100 * MiB);
    stage.sample();
    test.match(stage.cardView(), { floorBytes: bytes * MiB, residueBytes: 0, foreignBytes: 0 });
  }
  stage.take(starting, -100 * MiB);
  stage.sample();
  test.equal(stage.cardView().floorBytes, 300 * MiB, 'it falls with its own word alone');
  test.end();
});

t.test('a process that takes nothing on its card is charged nothing, and says nothing of those that will', (test) => {
  const stage = new Stage({ llamaFloorBytes: taken });
  stage.card(card0, { floorBytes: null });
  stage.worker({ floorBytes: 0 });
  test.equal(stage.cardView().floorBytes, 0);
  stage.place(stage.session(), 'next', { device: card0 });
  test.equal(stage.cardView().floorBytes, taken);
  test.end();
});
