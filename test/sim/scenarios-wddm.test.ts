/** A card that shows each process only its own budget: what the broker decides rests on the card's figure alone. */
import t from 'tap';
import { evictionTarget } from '../../broker/core/index.js';
import { stageOf } from './scene.js';
import { card24, manyModelsEngine, model } from './stage.js';
import { SimCard } from '../../src/scenarios/world/card.js';
import { Scheduler } from '../../src/scenarios/world/scheduler.js';
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
