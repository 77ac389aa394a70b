/** A card that shows each process only its own budget: what the broker decides rests on the card's figure alone. */
import t from 'tap';
import { evictionTarget } from '../../broker/core/index.js';
import { device, settle, stageOf } from './scene.js';
import { card24, manyModelsEngine, model } from './stage.js';
import { SimCard } from '../../src/scenarios/world/card.js';
import { Scheduler, secondsToUs } from '../../src/scenarios/world/scheduler.js';
import { gib } from '../../src/scenarios/world/knobs.js';
import { mb, measuredFacts, WddmView } from '../../src/scenarios/world/wddm.js';

t.test('R265: the view reproduces the measured table: the card’s figure falls, the observer’s does not', async (t) => {
  const table = [[2_560, 15_221, 13_107], [7_168, 15_221, 8_499], [11_264, 15_221, 4_403], [14_336, 15_188, 1_331]] as const;
  const card = new SimCard({ ...card24, totalBytes: 15_667 * mb, confirms: 'total' }, new Scheduler());
  const observer = new WddmView(() => card.freeBytes(), measuredFacts);
  observer.pinAt(15_221 * mb);
  let siblingBytes = 0;
  for (const [siblingMb, blindMb, trueMb] of table) {
    card.allocate('sibling', siblingMb * mb - siblingBytes);
    siblingBytes = siblingMb * mb;
    t.strictSame([observer.freeBytes() / mb, card.freeBytes() / mb], [blindMb, trueMb], `sibling at ${siblingMb} MB`);
  }
  const quiet = new SimCard({ ...card24, totalBytes: 15_667 * mb, confirms: 'total' }, new Scheduler());
  const own = new WddmView(() => quiet.freeBytes(), measuredFacts);
  own.pin();
  t.equal(own.freeBytes() - quiet.freeBytes(), -583 * mb, 'pinned: below the truth');
  quiet.allocate('sibling', 4_000 * mb);
  own.partition();
  t.equal(own.freeBytes() - quiet.freeBytes(), 533 * mb, 'just partitioned: above it');
  const before = own.freeBytes();
  own.allocate(2_000 * mb);
  t.equal(before - own.freeBytes(), 2_000 * mb, 'own allocations debit one to one');
});

t.test('R265: in both regimes a delegated manager frees the exact shortfall, and nothing when there is none', async (t) => {
  const card = new SimCard({ ...card24, totalBytes: 15_667 * mb, confirms: 'total' }, new Scheduler());
  const host = new WddmView(() => card.freeBytes(), measuredFacts);
  card.allocate('sibling', 11_264 * mb);
  for (const regime of ['pin', 'partition'] as const) {
    host[regime]();
    for (const needBytes of [9_000 * mb, 4_403 * mb + 1, 4_403 * mb, 1_000 * mb]) {
      const trueFreeBytes = card.freeBytes();
      const { targetBytes } = evictionTarget({ needBytes, blindFreeBytes: host.freeBytes(), reusableCacheBytes: 0, trueFreeBytes, hostFreeIsDeviceWide: false });
      t.equal(Math.max(0, targetBytes - host.freeBytes()), Math.max(0, needBytes - trueFreeBytes), `${regime}: need ${needBytes}, free ${trueFreeBytes}`);
    }
  }
});

t.test('R265: on a card without figures by process the broker evicts the exact shortfall, and nothing when it fits', async (t) => {
  const blind = { ...card24, totalBytes: 15_667 * mb, confirms: 'total' as const };
  const engines = [{ ...manyModelsEngine, partial: true }];
  const sibling = model('sibling', 10_000 * mb, { engine: 'python' });
  const stage = stageOf({ cards: [blind], engines, models: [sibling, model('fits', 4_000 * mb, { engine: 'python' }), model('b', 3_000 * mb, { engine: 'python' })] });
  for (const key of ['sibling', 'fits']) {
    const asked = stage.ask(key);
    stage.until(() => asked.outcome !== null);
    stage.to(stage.nowMs + 3_000);
  }
  t.equal(stage.effects('move').length, 0, 'what fits evicts nothing');
  const availableBytes = stage.view().cards[0]!.availableBytes!;
  t.equal(availableBytes, 15_667 * mb - 11_000 * mb - 4_400 * mb, 'what is left by the card');
  const b = stage.ask('b');
  stage.until(() => b.outcome !== null);
  const [move] = stage.effects('move');
  t.equal(move?.bytes, 3_300 * mb - availableBytes, 'the shortfall and no byte more');
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B112: without figures by process releases are confirmed by what the card shows, one after another', async (t) => {
  const names = ['a', 'b', 'c'];
  const models = [...names.map((key) => model(key, 6 * gib, { moveMs: 400 })), model('big', 19 * gib)];
  const stage = stageOf({ cards: [{ ...card24, confirms: 'total' }], models });
  for (const key of names) settle(stage, key);
  stage.world.lag = () => ({ fromUs: secondsToUs(1), toUs: secondsToUs(1), steps: 1 });
  const big = stage.ask('big');
  let most = 0;
  let seenBytes = 0;
  stage.until(() => {
    most = Math.max(most, stage.effects('move').length - names.filter((key) => stage.lease(key) === null).length);
    if (stage.lease('big') === null) seenBytes = stage.world.card(device).usedBytes();
    return big.outcome !== null;
  });
  t.equal(big.outcome, 'answered');
  t.equal(most, 1, 'one release at a time');
  t.equal(seenBytes, 0, 'granted when the card showed them gone');
  t.equal(stage.effects('move').length, 3);
  t.equal(stage.effects('explain').filter(({ record }) => record.verdict === 'quarantined').length, 0, 'nobody is blamed');
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B113: a driver that spills instead of refusing: the load that succeeded is an overshoot, told and put away', async (t) => {
  const spilling = { ...card24, confirms: 'total' as const, reserveBytes: gib, spills: true };
  const stage = stageOf({ cards: [spilling], models: [model('a', 19 * gib, { callMs: 10_000, loadMs: 4_000 })] });
  const a = stage.ask('a');
  stage.until(() => stage.lease('a')?.state === 'loading');
  const card = stage.world.card(device);
  card.foreignBytes = 8 * gib;
  stage.until(() => stage.lease('a')?.state === 'resident');
  t.strictSame([card.usedBytes(), card.spilled()?.[0]?.spilledBytes], [24 * gib, 3 * gib], 'it was not refused, and does not fit');
  const told = (): readonly unknown[] => stage.effects('publish').filter(({ name, data }) => name === 'overshoot' && data['bytes'] === 3 * gib);
  stage.until(() => told().length > 0);
  t.ok(stage.effects('explain').some(({ record }) => /3\.0 GiB in host memory that .* had no room for/.test(record.text)));
  stage.until(() => a.outcome !== null);
  t.equal(a.outcome, 'answered', 'its call is not cut');
  stage.until(() => stage.lease('a') === null);
  stage.to(stage.nowMs + 5_000);
  t.equal(told().length, 1, 'told once');
  t.match(stage.view().cards[0], { leasedBytes: 0, returningBytes: 0, foreignBytes: 8 * gib, availableBytes: 15 * gib });
  const again = stage.ask('a', { deadlineMs: 5_000 });
  stage.until(() => again.outcome !== null);
  t.equal(again.outcome, 'denied', 'and it is not loaded again beside the stranger');
  t.equal(stage.world.counters.loads, 1);
  t.strictSame(stage.auditor.violations, []);
});
