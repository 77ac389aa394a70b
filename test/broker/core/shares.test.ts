/** What all peers share is bounded, and a flood costs the one who makes it: places in a card's queue, workers that are started. */
import t from 'tap';
import type { Effect } from '../../../broker/core/index.js';
import { all, card0, GiB, only, Stage } from './harness.js';

const denials = (effects: readonly Effect[]): unknown[] => all(effects, 'deny').map(({ generation, request, code, details }) => ({ generation, request, code, own: details['own'] }));

t.test('a full queue refuses the newest of the peer that holds the most of it, never one of a peer with fewer', (test) => {
  const stage = new Stage({ limits: { queuedRequestsPerCardMax: 6 } });
  stage.card(card0, { totalBytes: 4 * GiB });
  stage.granted(stage.session('holder'), 'all of it', 3 * GiB, { policy: { pinned: true } });
  const flood = stage.session('holder');
  const ask = (holder: string, model: string): { readonly request: number; readonly effects: Effect[] } => stage.ask(holder, model, 2 * GiB, { deadlineMs: 600_000 });
  const asked = Array.from({ length: 6 }, (_, index) => ask(flood, `flood-${String(index)}`).request);
  test.match(denials(ask(flood, 'one too many').effects), [{ generation: flood, code: 'queue_full', own: '6' }], 'itself, while it has the most');
  const others = Array.from({ length: 3 }, () => stage.session('holder'));
  for (const [index, other] of others.entries()) {
    const { effects } = ask(other, 'mine');
    test.match(denials(effects), [{ generation: flood, request: asked[5 - index], code: 'queue_full', own: String(6 - index) }], 'its newest gives way');
    test.ok(all(effects, 'wait').some((wait) => wait.generation === other), 'and the one with none waits');
  }
  const [first = ''] = others;
  test.match(denials(ask(first, 'second').effects), [{ generation: flood, request: asked[2], own: '3' }]);
  test.match(denials(ask(first, 'third').effects), [{ generation: first, code: 'queue_full', own: '2' }], 'two of six are as many as the flood has left');
  test.match(stage.view().waiting.map(({ generation }) => generation).filter((generation) => generation === flood).length, 2);
  test.end();
});

t.test('the refused one is the newest of its peer by its coming, whatever its age or class; a placement that joins a worker needs no place', (test) => {
  const stage = new Stage({ limits: { queuedRequestsPerCardMax: 3 }, modelsPerWorker: 8 });
  stage.card(card0, { totalBytes: 4 * GiB });
  const worker = stage.worker();
  stage.granted(stage.session('holder'), 'all of it', 3 * GiB, { policy: { pinned: true } });
  const flood = stage.session('holder');
  stage.ask(flood, 'a', 2 * GiB, { class: 'background' });
  stage.ask(flood, 'b', 2 * GiB, { class: 'background' });
  const newest = stage.ask(flood, 'c', 2 * GiB, { class: 'interactive', ageMs: 60_000 });
  const { effects } = stage.place(stage.session(), 'd');
  test.equal(only(effects, 'placed').worker, worker);
  test.strictSame(denials(effects), [], 'nobody had to give way for it');
  test.match(denials(stage.ask(stage.session('holder'), 'e', 2 * GiB).effects), [{ generation: flood, request: newest.request }]);
  test.end();
});

t.test('a flood of placements cannot have all workers: one that nobody uses yet gives way to a peer with fewer', (test) => {
  const stage = new Stage({ limits: { workersMax: 4 } });
  stage.card();
  const flood = stage.session();
  const placed = Array.from({ length: 4 }, (_, index) => stage.place(flood, `flood-${String(index)}`));
  const spawned = placed.map(({ effects }) => only(effects, 'spawn').generation);
  test.match(denials(stage.place(flood, 'one too many').effects), [{ generation: flood, code: 'too_many_workers', own: '4' }]);
  stage.ready(spawned[0] ?? '');
  const other = stage.session();
  const first = stage.place(other, 'mine');
  test.match(only(first.effects, 'terminate'), { generation: spawned[3], cause: 'evicted' }, 'the newest start');
  test.match(denials(first.effects), [{ generation: flood, request: placed[3]?.request, code: 'too_many_workers' }], 'and whoever waited for it is told');
  test.equal(only(first.effects, 'wait').generation, other);
  test.equal(all(stage.pass(2_000), 'terminate').length, 0, 'one is enough for one');
  test.match(denials(stage.place(flood, 'again').effects), [{ generation: flood, own: '3' }], 'the place that comes free is not for the flood');
  const started = only(stage.exit(spawned[3] ?? ''), 'spawn').generation;
  test.ok(all(stage.ready(started), 'placed').some(({ request }) => request === first.request));
  const second = stage.place(other, 'mine too');
  test.match(only(second.effects, 'terminate'), { generation: spawned[2] });
  test.match(denials(stage.place(other, 'a third').effects), [{ generation: other, code: 'too_many_workers', own: '2' }], 'two each');
  test.end();
});

t.test('a worker that is still starting ends at once when whoever waited for it has given up, unless somebody else waits', (test) => {
  const stage = new Stage({ modelsPerWorker: 8 });
  stage.card();
  const flood = stage.session();
  const other = stage.session();
  const first = stage.place(flood, 'a');
  const starting = only(first.effects, 'spawn').generation;
  const second = stage.place(other, 'b');
  test.equal(all(second.effects, 'spawn').length, 0, 'it will host both');
  test.strictSame(all(stage.send({ type: 'request_cancelled', generation: flood, request: first.request }), 'terminate'), [], 'another waits for it');
  test.match(all(stage.send({ type: 'request_cancelled', generation: other, request: second.request }), 'terminate'), [{ generation: starting, cause: 'unawaited' }]);
  stage.exit(starting);

  const left = [stage.place(flood, 'c', { engine: 'llama' }), stage.place(flood, 'd', { engine: 'python' })].map(({ effects }) => only(effects, 'spawn').generation);
  test.match(all(stage.send({ type: 'session_closed', generation: flood, reason: 'end of file' }), 'terminate'), left.map((generation) => ({ generation, cause: 'unawaited' })), 'gone is given up, too');
  for (const generation of left) test.strictSame(denials(stage.send({ type: 'spawn_failed', generation, code: 'spawn_failed', reason: 'never started' })), [], 'and nobody is left to hear that it never began');
  test.strictSame(stage.view().processes.filter(({ role }) => role === 'worker'), []);

  const late = stage.place(other, 'e');
  const ready = only(late.effects, 'spawn').generation;
  stage.ready(ready);
  test.strictSame(all(stage.send({ type: 'request_cancelled', generation: other, request: late.request }), 'terminate'), [], 'one that is up has been paid for');
  test.equal(all(stage.place(other, 'c').effects, 'deny').length, 0, 'no model is blamed for a start that was taken back');
  test.end();
});

t.test('of one peer so many workers may be starting; its further placements wait, keep nobody up, and start one by one', (test) => {
  const stage = new Stage({ limits: { spawnsAtOnceMax: 2 } });
  stage.card();
  const flood = stage.session();
  const placed = Array.from({ length: 5 }, (_, index) => stage.place(flood, `flood-${String(index)}`));
  const [a = '', b = ''] = placed.flatMap(({ effects }) => all(effects, 'spawn')).map(({ generation }) => generation);
  test.equal(all(stage.effects, 'spawn').length, 2);
  test.match(placed.slice(2).map(({ effects }) => only(effects, 'wait').reason), [/starting for it/, /starting for it/, /starting for it/], 'and they are told why');
  const other = stage.session();
  test.equal(all(stage.place(other, 'mine').effects, 'spawn').length, 1, 'a peer with none goes past them');
  test.equal(all(stage.ready(a), 'spawn').length, 1, 'one is up, the next begins');
  const cancelled = stage.send({ type: 'request_cancelled', generation: flood, request: placed[1]?.request ?? 0 });
  test.match(only(cancelled, 'terminate'), { generation: b, cause: 'unawaited' });
  test.equal(all([...cancelled, ...stage.pass(1_000)], 'spawn').length, 0, 'one that was taken back counts until it is gone');
  test.equal(all(stage.exit(b), 'spawn').length, 1);
  test.equal(stage.view().waiting.filter(({ generation }) => generation === flood).length, 3, 'two for their workers, one for its turn');
  test.end();
});

t.test('a worker in use gives way to nobody, one whose caller has left to everybody, and one that others wait for stays', (test) => {
  const stage = new Stage({ limits: { workersMax: 2 } });
  stage.card();
  const flood = stage.session();
  const used = only(stage.place(flood, 'used').effects, 'spawn').generation;
  stage.ready(used);
  stage.resident(used, 'used', GiB);
  const shared = only(stage.place(flood, 'shared').effects, 'spawn').generation;
  const other = stage.session();
  stage.place(other, 'shared');
  test.match(denials(stage.place(other, 'mine').effects), [{ generation: other, code: 'too_many_workers', own: '0' }]);
  stage.ready(shared);
  stage.send({ type: 'session_closed', generation: flood, reason: 'end of file' });
  const third = stage.session();
  test.match(only(stage.place(third, 'mine').effects, 'terminate'), { generation: shared });
  test.equal(stage.lease(stage.view().leases[0]?.lease ?? '')?.state, 'resident', 'the one in use is as it was');
  test.end();
});

t.test('for each that waits for a worker one idle worker is ended, and no more', (test) => {
  const stage = new Stage({ limits: { workersMax: 5, ticketTtlMs: 1_000 } });
  stage.card();
  const idle = Array.from({ length: 5 }, () => stage.worker());
  stage.pass(2_000);
  const client = stage.session();
  const seen = [...stage.place(client, 'a', { engine: 'python' }).effects, ...stage.place(client, 'b', { engine: 'python-b' }).effects, ...stage.pass(3_000)];
  test.equal(all(seen, 'terminate').length, 2);
  const ended = all(seen, 'terminate').map(({ generation }) => generation);
  test.ok(ended.every((generation) => idle.includes(generation)));
  const started = ended.flatMap((generation) => all(stage.exit(generation), 'spawn'));
  test.strictSame(started.map(({ engine }) => engine), ['python', 'python-b']);
  test.end();
});

t.test('a flood of requests leaves room for everybody else', (test) => {
  const stage = new Stage({ limits: { queuedRequestsPerCardMax: 100 } });
  stage.card(card0, { totalBytes: 4 * GiB });
  stage.granted(stage.session('holder'), 'all of it', 3 * GiB, { policy: { pinned: true } });
  const flood = stage.session('holder');
  for (let index = 0; index < 150; index++) stage.ask(flood, `flood-${String(index)}`, 2 * GiB, { deadlineMs: 600_000 });
  test.equal(stage.view().waiting.length, 100);
  test.equal(stage.counter('denials.queue_full'), 50);
  for (let index = 0; index < 20; index++) {
    const { effects } = stage.ask(stage.session('holder'), 'mine', 2 * GiB, { deadlineMs: 600_000 });
    test.match(denials(effects), [{ generation: flood }]);
  }
  test.equal(stage.view().waiting.length, 100);
  test.end();
});
