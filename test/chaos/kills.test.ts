/** Random parts are killed under load: nothing is lost, no orphan left, and the ledger is what a fresh count says. `npm run -s kills -- --kills 1000` does it longer. */
import t from 'tap';
import { runKills } from './kills.js';

t.test('kill -9 of a random part under load, again and again: the ledger is equal to a fresh count after each', async (t) => {
  const { kills, calls, answered, told, brokers } = await runKills({ kills: 16, seed: 1 });
  t.equal(calls, answered + Object.values(told).reduce((sum, each) => sum + each, 0), 'every call has ended');
  t.ok(answered > calls / 2, `${String(answered)} of ${String(calls)} were answered`);
  t.ok(Object.values(kills).every((each) => each > 0), 'parts of every kind were killed');
  t.equal(brokers, kills.broker + 1);
});
