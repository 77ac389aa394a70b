/** Orders that are refused before anything of them is begun. */
import t from 'tap';
import { expiresAtUs, refusedUnbegun } from '../../protocol/node/index.js';

const sentUs = 1_000_000_000;
const command = { id: 7, generation: 'b-w1', lease: 'b-l1', model: 'm', sentUs, expiresMs: 10_000 };
const at = (afterMs: number, more: Partial<typeof command> = {}): unknown => refusedUnbegun({ ...command, ...more }, 'b-w1', true, sentUs + afterMs * 1_000);

t.test('B31: sent at 0, read 8 s later, good for 10 s: it ends at 10 s, not at 18', (t) => {
  t.equal(expiresAtUs(command, sentUs + 8_000_000), sentUs + 10_000_000);
  t.equal(at(8_000), null);
  t.equal(at(9_999), null);
  for (const afterMs of [10_000, 17_999, 86_400_000]) t.match(at(afterMs), { type: 'failed', id: 7, code: 'command_expired', message: /The command for m expired/, residentBytes: null });
  t.end();
});

t.test('a moment of sending that is still to come gives an order no more time than it has from receipt', (t) => {
  t.equal(expiresAtUs({ sentUs: sentUs + 60_000_000, expiresMs: 10_000 }, sentUs), sentUs + 10_000_000);
  t.equal(at(0, { sentUs: sentUs + 60_000_000 }), null);
  t.end();
});

t.test('whose it is comes before how late it is', (t) => {
  const lateUs = sentUs + 60_000_000;
  t.match(refusedUnbegun(command, 'b-w2', true, lateUs), { code: 'generation_stale', residentBytes: null });
  t.match(refusedUnbegun(command, 'b-w1', false, lateUs), { code: 'lease_unknown', residentBytes: 0 });
  t.end();
});
