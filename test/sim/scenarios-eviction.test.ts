/** Evictions end to end on a simulated card: late bytes, lies, crashes, silence. Times are virtual. */
import t from 'tap';
import { device, settle, stageOf } from './scene.js';
import { card24, manyModelsEngine, model, oneModelEngine } from './stage.js';
import { noLag } from '../../src/scenarios/world/card.js';
import { gib } from '../../src/scenarios/world/knobs.js';
import { secondsToUs } from '../../src/scenarios/world/scheduler.js';

t.test('B35: a grant follows the measured bytes as they come back, not the exit and not the clock', async (t) => {
  for (const confirms of ['process', 'total'] as const) {
    const stage = stageOf({ cards: [{ ...card24, confirms }], models: [model('a', 14 * gib), model('b', 12 * gib)] });
    settle(stage, 'a');
    stage.world.lag = () => ({ fromUs: secondsToUs(2), toUs: secondsToUs(7), steps: 100 });
    const b = stage.ask('b', { deadlineMs: 30_000 });
    stage.until(() => stage.world.card(device).bytesOf(stage.effects('spawn')[0]!.generation) === 14 * gib && stage.lease('a')?.state === 'releasing');
    const freedAtMs = stage.nowMs;
    stage.until(() => b.outcome !== null);
    const grant = stage.effects('grant').at(-1)!;
    // 13.2 GiB are needed and 10 were free: 3.2 of 14 must be back, 1.14 s into the five.
    t.ok(grant.atMs - freedAtMs >= 3_000, `${confirms}: granted ${grant.atMs - freedAtMs} ms after the free, when enough was back`);
    t.ok(grant.atMs - freedAtMs <= 8_500, `${confirms}: and not long after all of it was`);
    t.equal(b.outcome, 'answered');
    t.strictSame(stage.auditor.violations, []);
  }
});

t.test('B35: bytes that never come back end in a clear refusal at the deadline', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib), model('b', 12 * gib)] });
  settle(stage, 'a');
  stage.world.lag = () => ({ fromUs: secondsToUs(3_600), toUs: secondsToUs(3_600), steps: 1 });
  const askedAtMs = stage.nowMs;
  const b = stage.ask('b', { deadlineMs: 30_000 });
  stage.until(() => b.outcome !== null);
  const denial = stage.effects('deny').at(-1)!;
  t.equal(denial.code, 'deadline_passed');
  t.ok(denial.atMs - askedAtMs >= 29_900 && denial.atMs - askedAtMs <= 31_500, `denied after ${denial.atMs - askedAtMs} ms`);
  t.equal(stage.effects('grant').length, 1, 'nothing was granted on the old number');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B38: the next model starts after the measured drop, and one failed load does not poison it', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib), model('b', 16 * gib)] });
  settle(stage, 'a');
  stage.world.lag = (after) => (after === 'exit' ? { fromUs: secondsToUs(3), toUs: secondsToUs(3), steps: 1 } : noLag);
  const crashedAtMs = stage.nowMs;
  [...stage.world.workers.values()][0]!.end('exit code 139');
  const b = stage.ask('b', { tries: 2 });
  stage.until(() => stage.effects('grant').length === 2);
  t.ok(stage.effects('grant')[1]!.atMs - crashedAtMs >= 3_000, 'granted after the memory was back');
  const card = stage.world.card(device);
  card.foreignBytes = 20 * gib;
  stage.until(() => stage.world.counters.ooms === 1);
  card.foreignBytes = 0;
  stage.until(() => b.outcome !== null);
  t.equal(b.outcome, 'answered', 'the retry after a new measurement is served');
  t.equal(stage.world.counters.ooms, 1);
  const again = stage.ask('b');
  stage.until(() => again.outcome !== null);
  t.equal(again.outcome, 'answered', 'later requests find it healthy');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B41: a park that is acknowledged and frees almost nothing is seen, charged, escalated, and nobody is granted on it', async (t) => {
  const parkable = { engine: 'python', parkable: true };
  const stage = stageOf({ models: [model('a', 18 * gib, parkable), model('b', 12 * gib)] });
  stage.behave({ ackLies: true, liesFreeShare: 2 / 18 });
  settle(stage, 'a');
  stage.behave({});
  const b = stage.ask('b', { deadlineMs: 110_000 });
  const liar = stage.effects('spawn')[0]!.generation;
  stage.until(() => stage.world.card(device).bytesOf(liar) < 17 * gib);
  stage.to(stage.nowMs + 5_000);
  const [card] = stage.view().cards;
  t.ok(card!.leasedBytes + card!.residueBytes >= 16 * gib, 'five seconds later all that is still there is charged');
  t.equal(stage.effects('grant').length, 1, 'and nothing was granted on the acknowledgement');
  stage.until(() => b.outcome !== null);
  const [end] = stage.effects('terminate');
  const granted = stage.effects('grant').find((grant) => grant.generation !== liar)!;
  t.equal(stage.effects('move')[0]?.target, 'host', 'first it was to park');
  t.equal(stage.effects('move')[1]?.target, 'none', 'then to unload');
  t.equal(end?.generation, liar, 'the ladder ends in a restart of the process');
  t.ok(granted.atMs > end!.atMs, 'and only then is the room given away');
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B44: what a failed load leaves behind is charged, and its process restarted before anything is granted there', async (t) => {
  const stage = stageOf({ models: [model('a', 20 * gib, { engine: 'python' }), model('b', 6 * gib, { engine: 'python' })] });
  stage.behave({ loadFails: 1, leaksOnFailure: true });
  const a = stage.ask('a');
  stage.until(() => a.outcome !== null);
  const [failing] = stage.effects('spawn');
  stage.behave({});
  t.equal(a.outcome, 'load_failed');
  t.ok(stage.world.card(device).bytesOf(failing!.generation) > 5 * gib, 'part of it stayed');
  const b = stage.ask('b', { deadlineMs: 90_000, tries: 3 });
  stage.to(stage.nowMs + 2_000);
  const [card] = stage.view().cards;
  t.ok(card!.leasedBytes + card!.residueBytes >= stage.world.card(device).usedBytes(), 'what stayed is charged');
  stage.until(() => b.outcome !== null);
  const exited = stage.steps.findIndex(({ event }) => event.type === 'process_exited' && event.generation === failing!.generation);
  const granted = stage.steps.findIndex(({ effects }, index) => index > 0 && effects.some((effect) => effect.type === 'grant' && effect.generation !== failing!.generation));
  t.ok(stage.effects('terminate').some((end) => end.generation === failing!.generation), 'the process with the remains is ended');
  t.ok(exited >= 0 && exited < granted, 'and nothing more was granted to it');
  t.equal(stage.effects('grant').filter((grant) => grant.generation === failing!.generation).length, 1);
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B46: an early acknowledgement is no grant, and park and unload leave different things behind', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib, { engine: 'python', parkable: true }), model('b', 16 * gib)] });
  stage.behave({ ackEarlyMs: 1_500 });
  settle(stage, 'a');
  stage.behave({});
  const holderOfA = stage.effects('spawn')[0]!.generation;
  const b = stage.ask('b');
  stage.until(() => stage.steps.some(({ event }) => event.type === 'command_answered' && event.answer.kind === 'done'));
  const ackedAtMs = stage.nowMs;
  stage.until(() => b.outcome !== null);
  const granted = stage.effects('grant').find((grant) => grant.generation !== holderOfA)!;
  t.ok(granted.atMs - ackedAtMs >= 1_500, `granted ${granted.atMs - ackedAtMs} ms after the acknowledgement`);
  const [move] = stage.effects('move');
  t.equal(move?.target, 'host', 'a model that can be parked is parked');
  t.match(stage.lease('a'), { state: 'parked', residentBytes: 0 }, 'its copy in host RAM is still its own');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B46: after an unload nothing is left, and the model is loaded anew', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib), model('b', 16 * gib)] });
  settle(stage, 'a');
  settle(stage, 'b');
  t.equal(stage.effects('move')[0]?.target, 'none');
  t.equal(stage.lease('a'), null);
  settle(stage, 'a');
  t.equal(stage.world.counters.loads, 3);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B56: work that a stranger kept waiting resumes within one probe of the stranger’s end', async (t) => {
  const stage = stageOf({ models: [model('a', 12 * gib)] });
  stage.world.card(device).foreignBytes = 16 * gib;
  stage.to(1_000);
  const a = stage.ask('a', { deadlineMs: 120_000 });
  stage.at(61_000, () => (stage.world.card(device).foreignBytes = 0));
  stage.to(60_900);
  t.equal(stage.effects('grant').length, 0, 'not while the stranger is there');
  stage.until(() => a.outcome !== null);
  t.ok(stage.effects('grant')[0]!.atMs <= 61_000 + 500 + 100, 'one probe interval later it goes on');
  t.equal(a.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('R268: a victim that frees short is asked for all, the next one goes; what is counted free is what the card says', async (t) => {
  const engines = [oneModelEngine, { ...manyModelsEngine, partial: true }];
  const stage = stageOf({ engines, models: [model('a', 10 * gib, { engine: 'python' }), model('c', 8 * gib), model('b', 14 * gib)] });
  stage.behave({ freesShort: true });
  settle(stage, 'a');
  stage.behave({});
  settle(stage, 'c');
  const b = stage.ask('b', { deadlineMs: 90_000 });
  stage.until(() => b.outcome !== null);
  t.equal(b.outcome, 'answered');
  const orders = stage.effects('move').map((move) => `${move.model} ${move.bytes === null ? 'all' : 'part'}`);
  t.strictSame(orders, ['a part', 'c all', 'a all'], 'a part of the first and all of the next were to be enough; then all of the first');
  const [card] = stage.view().cards;
  const residentBytes = stage.view().leases.reduce((sum, lease) => sum + lease.residentBytes, 0);
  t.equal(residentBytes + card!.residueBytes, stage.world.card(device).usedBytes(), 'what is left by the ledger is what is left on the card');
  t.strictSame(stage.auditor.violations, []);
});

t.test('R269: bytes of a victim killed under its command count only once its end is confirmed, and its successor is not addressed by mistake', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib, { moveMs: 4_000 }), model('b', 16 * gib)] });
  settle(stage, 'a');
  const first = stage.effects('spawn')[0]!.generation;
  stage.world.lag = (after) => (after === 'exit' ? { fromUs: secondsToUs(1), toUs: secondsToUs(1), steps: 1 } : noLag);
  const b = stage.ask('b');
  stage.until(() => stage.effects('move').length === 1);
  stage.to(stage.nowMs + 500);
  stage.world.workers.get(first)!.end('SIGKILL');
  const killedAtMs = stage.nowMs;
  const a = stage.ask('a');
  stage.until(() => b.outcome !== null && a.outcome !== null);
  const granted = stage.effects('grant')[1]!;
  t.ok(granted.atMs - killedAtMs >= 1_000, 'granted when the driver had given the bytes back');
  const later = stage.effects('move').slice(1);
  t.ok(later.every((move) => move.generation !== first), 'no command to the dead generation');
  t.strictSame([a.outcome, b.outcome], ['answered', 'answered']);
  t.strictSame(stage.auditor.violations, []);
});

t.test('R270: a victim that is alive and silent on commands frees nothing; the next one is tried, and the ledger still shows the first', async (t) => {
  const stage = stageOf({ models: [model('a', 10 * gib), model('c', 10 * gib, { loadMs: 4_000 }), model('b', 9 * gib)] });
  stage.behave({ ignoresCommands: true });
  settle(stage, 'a');
  stage.behave({});
  settle(stage, 'c');
  // The silent one is the cheaper victim: it is loaded sooner, and has been idle for longer.
  stage.to(stage.nowMs + 5_000);
  const b = stage.ask('b', { deadlineMs: 60_000 });
  stage.until(() => stage.effects('move').length > 0);
  const [firstMove] = stage.effects('move');
  const firstLease = firstMove!.lease;
  stage.until(() => stage.effects('grant').length === 3);
  const shown = stage.view().leases.find((lease) => lease.lease === firstLease);
  t.equal(firstMove!.model, 'a');
  t.equal(shown?.residentBytes, 10 * gib, 'it is still shown with all its bytes');
  stage.until(() => b.outcome !== null);
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B53: bytes decide who may stay, and no count of models: 100 GiB and 29 GiB stand on four cards of 48 GiB together; another 100 GiB takes the room of the first', async (t) => {
  const cards = [0, 1, 2, 3].map((place) => ({ ...card24, device: `SIM-card-${place}`, totalBytes: 48 * gib }));
  const four = { cards: 4, shares: [0.25, 0.25, 0.25, 0.25] };
  const models = [model('large', 100 * gib, four), model('small', 29 * gib, { cards: 2, shares: [0.5, 0.5] }), model('second', 100 * gib, four)];
  const stage = stageOf({ cards, models });
  settle(stage, 'large');
  settle(stage, 'small');
  t.equal(stage.effects('move').length, 0, 'nobody left for it');
  t.strictSame(['large', 'small'].map((key) => stage.lease(key)?.state), ['resident', 'resident']);
  const second = stage.ask('second');
  stage.until(() => second.outcome !== null);
  t.equal(second.outcome, 'answered', 'no error for want of a place');
  t.ok(stage.effects('move').every((move) => move.model === 'large' || move.model === 'small'));
  t.equal(stage.lease('large')?.state === 'resident', false, 'two of 110 GiB do not fit 192');
  for (const { device } of cards) t.ok(stage.world.card(device).usedBytes() <= 48 * gib);
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});
