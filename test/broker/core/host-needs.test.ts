/** Models that need the machine's memory itself take turns there as others do on a card. */
import t from 'tap';
import { GiB, all, card0, host0, only, plusTenth, type AskOptions, type Stage } from './harness.js';
import { kept, stage } from './host-stage.js';

/** A model that needs the machine's memory itself, at rest: on the CPU, or with layers left there. */
function needing(on: Stage, worker: string, model: string, bytes: number, options: AskOptions = {}): string {
  const grant = only(on.ask(worker, model, GiB, { host: { neededBytes: bytes }, ...options }).effects, 'grant');
  on.take(worker, bytes, host0);
  on.load(worker, grant.lease, GiB);
  on.sample(card0);
  on.sample(host0);
  return grant.lease;
}

t.test('an idle model that needs the machine\'s memory itself is unloaded for one that waits for it, with nobody else disturbed', async (t) => {
  const on = stage(40 * GiB);
  const [a, b, c] = ['python', 'python-b', 'llama'].map((engine) => on.worker({ engine, model: engine }));
  const lease = needing(on, a!, 'a', 20 * GiB);
  const small = kept(on, b!, 'small', 4 * GiB);
  on.pass(3_000);
  const { effects } = on.ask(c!, 'b', GiB, { host: { neededBytes: 24 * GiB } });
  t.strictSame(all(effects, 'trim_host').map((trim) => trim.lease), [small], 'a copy that is not needed goes first');
  const move = only(effects, 'move');
  t.match(move, { lease, target: 'none', when: 'now', reason: 'room in the machine\'s memory for b' });
  on.take(a!, -20 * GiB, host0);
  on.take(a!, -GiB);
  on.samples = false;
  on.answer(move, { kind: 'done', target: 'none', freedBytes: GiB, residentBytes: 0, hostBytes: 0 });
  t.equal(all(on.effects, 'grant').filter(({ generation }) => generation === c).length, 0, 'an answer frees nothing');
  on.sample(host0);
  t.equal(all(on.effects, 'grant').filter(({ generation }) => generation === c).length, 1);
  on.sample(card0);
  t.equal(on.lease(lease), undefined, 'what the card shows later closes the lease');
  t.equal(on.chargedBytes(host0), plusTenth(24 * GiB) + plusTenth(4 * GiB), 'and charges nothing anew');
  t.ok(on.view().counters[`maxOverReserveBytes.${host0}`]! <= 0);
});

t.test('one that is pinned, young, or whose card is being measured stays; a busy one is drained late, and not any more when nobody waits', async (t) => {
  const on = stage(40 * GiB);
  const [a, b] = ['python', 'python-b'].map((engine) => on.worker({ engine, model: engine }));
  const lease = needing(on, a!, 'a', 20 * GiB);
  const asked = on.ask(b!, 'b', GiB, { host: { neededBytes: 24 * GiB } });
  t.match(only(asked.effects, 'wait').reason, /nothing may leave/, 'it has only just been loaded');
  on.use(a!, lease, 1);
  t.strictSame(all(on.pass(1_900), 'move'), [], 'it is young, and in use');
  const drain = only(on.pass(2_000), 'move');
  t.match(drain, { lease, when: 'drained', target: 'none' });
  on.answer(drain, { kind: 'draining', inFlight: 1 });
  t.match(on.view().waiting.map(({ reason }) => reason), [/room is being made/]);
  t.strictSame(all(on.pass(1_000), 'move'), [], 'once is enough');
  on.send({ type: 'request_cancelled', generation: b!, request: asked.request });
  t.equal(only([...on.effects.slice(-5), ...on.pass(1_000)], 'cancel_command').command, drain.command);

  const late = stage(40 * GiB);
  const [old, next] = ['python', 'python-b'].map((engine) => late.worker({ engine, model: engine }));
  const used = needing(late, old!, 'old', 20 * GiB);
  late.use(old!, used, 1);
  late.pass(10_000);
  late.ask(next!, 'next', GiB, { host: { neededBytes: 24 * GiB } });
  t.strictSame(all(late.pass(1_750), 'move'), [], 'long resident, and in use: who waits has not waited as long as its class says');
  t.match(only(late.pass(500), 'move'), { lease: used, when: 'drained' });

  const pinned = stage(40 * GiB);
  const [x, y] = ['python', 'python-b'].map((engine) => pinned.worker({ engine, model: engine }));
  needing(pinned, x!, 'x', 20 * GiB, { policy: { pinned: true } });
  pinned.ask(y!, 'y', GiB, { host: { neededBytes: 24 * GiB } });
  t.strictSame(all(pinned.pass(20_000), 'move'), []);
});
