/** A lease's id says whose it is: nobody else gets it, whoever is back first after a restart. */
import t from 'tap';
import { all, context, GiB, only, plusTenth, weights } from './harness.js';
import { announces, card1, comesBack, held, holder, restarted, terms, worker } from './returning.js';

t.test('a lease is its owner’s across a restart: who names it first does not get it', async (t) => {
  const theirs = 'old-s4-l8';
  const claims = { resident: GiB, loading: 0, parked: 0, parking: GiB, unloading: GiB } as const;
  for (const [state, bytes] of Object.entries(claims) as [keyof typeof claims, number][]) {
    await t.test(state, async (t) => {
      const stage = restarted({ recorded: ['worker', 'holder'] });
      stage.take(worker, bytes);
      stage.take(holder, 4 * GiB);
      comesBack(stage);
      const asked = stage.ask(worker, 'theirs', GiB, { lease: theirs, parts: [context(GiB)] });
      t.match(only(asked.effects, 'deny'), { code: 'lease_not_yours', details: { lease: theirs, owner: holder, generation: worker } }, 'before anything is told');
      t.match(only(stage.report(worker, theirs, 'resident', GiB), 'fail'), { code: 'lease_not_yours', details: { owner: holder } });

      const told = announces(stage, [held(bytes, { model: 'theirs', lease: theirs, state, terms: terms(4 * GiB) })]);
      t.equal(stage.lease(theirs), undefined);
      t.strictSame(stage.view().leases.map(({ generation, chargedBytes }) => [generation, chargedBytes]), bytes === 0 ? [] : [[worker, bytes]], 'what the claimant holds is charged, and nothing of what it says it was granted');
      const verdicts = told.flatMap((effect) => (effect.type === 'explain' && effect.record.verdict === 'overshoot' ? [effect.record.text] : []));
      t.match(verdicts, bytes === 0 ? [] : [/old-w1 holds 1\.0 GiB of theirs without a lease \(lease old-s4-l8 belongs to old-s4\); charged, and to be unloaded/]);
      t.match(only(stage.report(worker, theirs, 'resident', GiB), 'fail'), { code: 'lease_not_yours', details: { owner: holder } });
      t.equal(only(stage.send({ type: 'resize_requested', generation: worker, request: 70, lease: theirs, parts: [context(GiB)] }), 'fail').code, 'lease_not_yours');
      stage.use(worker, theirs, 3);
      stage.release(worker, theirs);
      stage.send({ type: 'load_begun', generation: worker, lease: theirs });

      comesBack(stage, holder);
      announces(stage, [held(4 * GiB, { model: 'theirs', lease: theirs, inFlight: 1, terms: terms(4 * GiB) })], holder);
      t.match(stage.lease(theirs), { generation: holder, state: 'resident', chargedBytes: plusTenth(4 * GiB), residentBytes: 4 * GiB, inFlight: 1 }, 'its owner comes back to it as if nothing had been');
      stage.sample();
      t.equal(stage.chargedBytes(), plusTenth(4 * GiB) + bytes);
      t.strictSame(all(told, 'move').map(({ generation }) => generation), bytes === 0 ? [] : [worker], 'who has bytes without a lease is told to put them away');
      t.match(only(stage.report(holder, theirs, 'resident', 4 * GiB, { parts: [weights(4 * GiB)] }), 'acknowledge'), { generation: holder });
    });
  }
  await t.test('after its owner, and over a connection that was lost alone', async (t) => {
    const stage = restarted({ recorded: ['worker', 'holder'], heldBytes: GiB });
    comesBack(stage, holder);
    announces(stage, [held(GiB, { model: 'theirs', lease: theirs })], holder);
    for (const round of [1, 2]) {
      comesBack(stage);
      announces(stage, [held(GiB, { model: 'theirs', lease: theirs })]);
      t.match(stage.lease(theirs), { generation: holder, chargedBytes: plusTenth(GiB) });
      t.match(stage.view().leases.find(({ generation }) => generation === worker), { lease: 'old-w1-boot-l1', residentBytes: GiB }, `the same bytes once, round ${String(round)}`);
      stage.send({ type: 'session_closed', generation: worker, reason: 'end of file' });
    }
    t.equal(stage.chargedBytes(), plusTenth(GiB) + GiB);
  });
  await t.test('what is used under a name that is not in the ledger is asked after, and counted where its bytes are', async (t) => {
    const stage = restarted({ recorded: ['holder'], heldBytes: GiB });
    comesBack(stage, holder);
    announces(stage, [held(GiB, { lease: 'old-w1-l7', inFlight: 2 })], holder);
    t.match(stage.lease('old-s4-boot-l1'), { inFlight: 2 });
    const used = (lease: string, inFlight: number) => stage.send({ type: 'use_reported', generation: holder, lease, seq: 50 + inFlight, inFlight, queued: 0 });
    t.strictSame(all(used('old-w1-l7', 1), 'list_models'), [], 'another’s says nothing of it');
    t.equal(only(used('old-s4-l9', 1), 'list_models').generation, holder);
    t.strictSame(all(used('old-s4-l9', 0), 'list_models'), [], 'once, until it has answered');
    announces(stage, [held(GiB, { lease: 'old-s4-l9', inFlight: 0 })], holder);
    t.match(stage.lease('old-s4-boot-l1'), { inFlight: 0, residentBytes: GiB });
    t.equal(stage.chargedBytes(), GiB, 'the same bytes, once');
  });
  await t.test('what another’s lease has on another card bounds nothing that is said of this one', async (t) => {
    const stage = restarted({ recorded: ['holder'] });
    stage.card(card1, { totalBytes: 200 * GiB });
    stage.sample(card1);
    const app = stage.session('holder');
    const lease = stage.granted(app, 'theirs', GiB, { device: card1 });
    comesBack(stage, holder);
    announces(stage, [held(150 * GiB, { model: 'theirs', lease })], holder);
    t.equal(stage.counter('claimsRefused'), 1);
    t.ok(stage.chargedBytes() <= 24 * GiB, 'no more than there is');
    t.match(stage.lease(lease), { generation: app, device: card1 });
  });
});
