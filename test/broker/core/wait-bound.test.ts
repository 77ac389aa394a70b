/** How long a request may wait behind others: the formula, where it is told, and where it cannot be known. */
import t from 'tap';
import { explainRecords, longestWaitBehindOthersMs, residencyMaxMs } from '../../../broker/core/index.js';
import { classPolicies, defaultLimits } from '../../../protocol/index.js';
import { all, card0, GiB, Stage } from './harness.js';

/** 5 + 60 + 30 + 30 s: victims answer, drain, move, and are seen gone. */
const roundMs = 125_000;

t.test('the longest wait of the class, then a turn for each older request and one for itself', async (t) => {
  const behind = { longestWaitMs: 30_000, older: 0, loadMs: 4_000, residencyMs: 2_000, rounds: 2 };
  t.equal(longestWaitBehindOthersMs(behind, defaultLimits), 30_000 + 4_000 + 2_000 + 2 * roundMs);
  t.equal(longestWaitBehindOthersMs({ ...behind, older: 3 }, defaultLimits), 30_000 + 4 * (6_000 + 2 * roundMs));
  t.equal(longestWaitBehindOthersMs({ ...behind, rounds: 5 }, defaultLimits), 30_000 + 6_000 + 5 * roundMs);
  t.equal(residencyMaxMs(Object.values(classPolicies)), 2_000);
  t.equal(residencyMaxMs([]), 0);
});

function waitingFor(older: number): { readonly stage: Stage; readonly worker: string; readonly lease: string } {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ model: 'a' });
  const lease = stage.resident(worker, 'a', 14 * GiB);
  stage.use(worker, lease, 1);
  for (let index = 0; index <= older; index++) stage.ask(stage.session('holder'), 'a', 12 * GiB, { class: 'background', deadlineMs: 600_000 });
  return { stage, worker, lease };
}

t.test('is told of a waiting request, and falls as time passes', async (t) => {
  const { stage } = waitingFor(1);
  const turnMs = 1_000 + 2_000 + 2 * roundMs;
  const [first, second] = stage.view().waiting;
  // The first has nobody before it, and nothing loads.
  t.ok(Math.abs((first?.behindOthersMs ?? 0) - (120_000 + turnMs - 1_000)) < 10, String(first?.behindOthersMs));
  t.ok(Math.abs((second?.behindOthersMs ?? 0) - (120_000 + 2 * turnMs)) < 10, String(second?.behindOthersMs));
  const records = explainRecords(stage.core, { model: 'a' }).filter(({ verdict }) => verdict === 'waiting');
  t.match(records.map(({ text }) => text), [/; at most 10 min 26 s more behind others$/, /; at most 6 min 12 s more behind others$/]);
  stage.pass(5_000);
  t.ok(Math.abs((stage.view().waiting[1]?.behindOthersMs ?? 0) - (115_000 + 2 * turnMs)) < 20);
});

t.test('is not known where a load before it was never measured, what is in the way is pinned or a holder\'s, or the card is not read', async (t) => {
  const { stage, lease } = waitingFor(0);
  stage.ask(stage.session('holder'), 'never loaded', 10 * GiB, { class: 'background' });
  stage.ask(stage.session('holder'), 'after it', 10 * GiB, { class: 'background' });
  t.type(stage.view().waiting[1]?.behindOthersMs, 'number');
  t.equal(stage.view().waiting[2]?.behindOthersMs, null);
  stage.send({ type: 'pin_requested', generation: stage.session(), request: 900, model: 'a', pinned: true });
  t.equal(all(stage.pass(500), 'wait').length > 0, true);
  t.equal(stage.view().waiting[0]?.behindOthersMs, null);
  t.equal(stage.lease(lease)?.pinned, true);
  const unread = waitingFor(0).stage;
  unread.samples = false;
  unread.send({ type: 'sample_failed', device: card0, reading: 'failed', reason: 'exit code 9' });
  t.equal(unread.view().waiting[0]?.behindOthersMs, null);
  const kept = new Stage();
  kept.card();
  kept.resident(kept.session('holder'), 'theirs', 14 * GiB);
  kept.ask(kept.session('holder'), 'b', 12 * GiB);
  t.equal(kept.view().waiting[0]?.behindOthersMs, null);
});
