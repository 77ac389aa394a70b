/** Processes as they are read in the machine's memory: their floors, and what they grow by beyond what they lease. */
import t from 'tap';
import { GiB, MiB, Stage, all, host0, only, plusTenth } from './harness.js';
import { kept } from './host-stage.js';

/** A stage with one large card and so much memory. */
function stage(totalBytes: number, options: ConstructorParameters<typeof Stage>[0] = {}): Stage {
  const made = new Stage(options);
  made.card('GPU-0', { totalBytes: 100 * GiB });
  made.memory(totalBytes);
  return made;
}

t.test('B211: a worker that grows with each unload is asked to give it back, then ended once it is idle; the broker says so', async (t) => {
  const grownBytes = Math.round(3.4 * GiB);
  const on = stage(64 * GiB, { limits: { commandAnswerMs: 2_000 } });
  const worker = on.worker({ engine: 'python' });
  on.take(worker, 300 * MiB, host0);
  on.sample(host0);
  t.equal(on.cardView(host0).floorBytes, 300 * MiB, 'before its first lease all it has is its floor');
  const lease = on.resident(worker, 'm', GiB);
  on.take(worker, 900 * MiB, host0);
  t.equal(all(on.sample(host0), 'publish').length, 0, 'a heap breathes');
  t.equal(on.cardView(host0).residueBytes, 900 * MiB, 'and is charged all the same');
  on.use(worker, lease, 1);
  on.take(worker, grownBytes, host0);
  const grown = on.sample(host0);
  t.match(all(grown, 'publish').map(({ name }) => name), ['host_growth', 'evicting']);
  const trim = only(grown, 'trim_host');
  t.equal(trim.bytes, grownBytes + 900 * MiB);
  on.send({ type: 'command_answered', generation: worker, command: trim.command, answer: { kind: 'done', target: 'device', freedBytes: 0, residentBytes: GiB, hostBytes: 0 } });
  t.equal(all(on.sample(host0), 'terminate').length, 0, 'it has its time to give it back');
  on.pass(2_250);
  t.equal(all(on.sample(host0), 'terminate').length, 0, 'a call is inside');
  t.match(only(on.use(worker, lease, 0), 'terminate'), { generation: worker, cause: 'host_growth' });
  on.exit(worker);
  t.equal(on.chargedBytes(host0), 0, 'a process that is gone has no memory');
  const { effects } = on.place(on.session(), 'm', { engine: 'python' });
  const again = only(effects, 'spawn').generation;
  t.equal(on.cardView(host0).floorBytes, 300 * MiB, 'the next one is charged what its kind costs');
  t.not(again, worker);
});

t.test('of a worker that was not read before its first lease, what no lease explains is its floor as far as can be told, and no growth', async (t) => {
  const on = stage(64 * GiB);
  const worker = on.worker({ engine: 'python' });
  const lease = on.granted(worker, 'm', GiB, { host: { peakBytes: 8 * GiB } });
  on.begin(worker, lease);
  on.take(worker, 5 * GiB, host0);
  on.sample(host0);
  t.equal(on.cardView(host0).floorBytes, 0, 'while it loads nobody can tell');
  on.load(worker, lease, GiB);
  on.sample(host0);
  t.match(on.cardView(host0), { floorBytes: 5 * GiB, residueBytes: 0 });
  on.take(worker, -2 * GiB, host0);
  on.sample(host0);
  t.match(on.cardView(host0), { floorBytes: 3 * GiB, residueBytes: 0 }, 'some of it was on its way back');
  on.take(worker, 2 * GiB, host0);
  on.sample(host0);
  t.match(on.cardView(host0), { floorBytes: 3 * GiB, residueBytes: 2 * GiB }, 'charged');
  t.equal(on.counter('hostGrowths'), 0, 'and nobody is to blame for a guess');
});

t.test('a reading that was taken before the first lease, and comes after it, tells the floor', async (t) => {
  const on = stage(64 * GiB);
  const worker = on.worker({ engine: 'python' });
  const beforeUs = on.nowUs;
  on.resident(worker, 'm', GiB);
  on.send({ type: 'sampled', device: host0, takenAtUs: beforeUs, usedBytes: 3 * GiB, totalBytes: 64 * GiB, truth: 'system', processes: [{ generation: worker, usedBytes: 3 * GiB }] });
  t.equal(on.cardView(host0).floorBytes, 3 * GiB);
  on.take(worker, 5 * GiB, host0);
  t.match(only(on.sample(host0), 'trim_host'), { bytes: 2 * GiB }, 'and its growth from there');
});

t.test('a worker that gives back what it had grown by is kept', async (t) => {
  const on = stage(64 * GiB, { limits: { commandAnswerMs: 2_000 } });
  const worker = on.worker({ engine: 'python' });
  on.take(worker, MiB, host0);
  on.sample(host0);
  on.resident(worker, 'm', GiB);
  on.take(worker, 3 * GiB, host0);
  only(on.sample(host0), 'trim_host');
  on.take(worker, -2_560 * MiB, host0);
  on.pass(10_000);
  t.equal(all(on.sample(host0), 'terminate').length, 0);
  t.equal(on.counter('hostGrowths'), 1);
});

t.test('a copy beyond what was granted is charged as far as its process is read to have it, whoever says so', async (t) => {
  for (const [claimedBytes, mostBytes] of [[Number.MAX_SAFE_INTEGER, 64 * GiB], [60 * GiB, null]] as const) {
    const on = stage(64 * GiB);
    const holder = on.session('holder');
    const lease = on.granted(holder, 'm', GiB, { host: { copyBytes: GiB } });
    on.load(holder, lease, GiB);
    on.sample();
    const said = on.report(holder, lease, 'resident', GiB, { hostBytes: claimedBytes });
    if (mostBytes === null) t.equal(all(said, 'acknowledge').length, 1);
    else t.match(only(said, 'fail'), { code: 'bytes_invalid', details: { field: 'a host copy of m', value: String(claimedBytes), minimum: '0', maximum: String(mostBytes) } });
    t.equal(on.lease(lease)?.hostChargedBytes, mostBytes === null ? plusTenth(claimedBytes) : plusTenth(64 * GiB), 'at once, whatever is read');
    on.sample(host0);
    t.equal(on.lease(lease)?.hostChargedBytes, plusTenth(GiB), 'no more than was granted, by what is read');
    t.match(on.cardView(host0), { leasedBytes: plusTenth(GiB), residueBytes: 0 });
    t.equal(on.counter('copiesDoubted'), 1);
    t.match(only(on.ask(on.session('holder'), 'other', GiB, { host: { neededBytes: 40 * GiB } }).effects, 'grant'), {}, 'others have the rest');
    on.take(holder, 3 * GiB, host0);
    on.report(holder, lease, 'resident', GiB, { hostBytes: 3 * GiB });
    on.sample(host0);
    t.equal(on.lease(lease)?.hostChargedBytes, plusTenth(3 * GiB), 'what is read is charged, granted or not');
  }
});

t.test('what a process had besides while it loaded is read anew before a copy goes for it', async (t) => {
  const on = stage(40 * GiB);
  const worker = on.worker({ engine: 'python' });
  on.take(on.worker({ engine: 'llama' }), 0, host0);
  const small = kept(on, on.worker({ engine: 'python-b', model: 'b' }), 'small', 4 * GiB);
  on.pass(3_000);
  on.granted(worker, 'first', GiB, { host: { peakBytes: GiB } });
  const first = on.view().leases.find(({ model }) => model === 'first')?.lease ?? '';
  on.begin(worker, first);
  on.take(worker, 5 * GiB, host0);
  on.load(worker, first, GiB);
  on.sample(host0);
  on.take(worker, -2 * GiB, host0);
  on.sample(host0);
  on.take(worker, 2 * GiB, host0);
  on.sample(host0);
  t.match(on.cardView(host0), { floorBytes: 3 * GiB, residueBytes: 2 * GiB });
  const second = on.granted(worker, 'second', GiB, { host: { neededBytes: 8 * GiB } });
  on.begin(worker, second);
  on.take(worker, (8 - 2) * GiB, host0);
  on.sample(host0);
  t.equal(on.cardView(host0).residueBytes, 2 * GiB, 'while it loads nobody can tell');
  on.samples = false;
  on.load(worker, second, GiB);
  const asker = on.session('holder');
  const neededBytes = Math.floor((40 * GiB - on.chargedBytes(host0) + GiB) / 1.1);
  const { effects } = on.ask(asker, 'third', GiB, { host: { neededBytes } });
  t.strictSame([...all(effects, 'trim_host'), ...all(effects, 'move'), ...all(effects, 'terminate')], [], 'nobody leaves for bytes in doubt');
  t.equal(all(effects, 'wait').length, 1);
  on.sample(host0);
  t.equal(all(on.effects, 'grant').filter(({ generation }) => generation === asker).length, 1, 'they were free');
  t.ok(on.lease(small) !== undefined && on.lease(small)!.hostBytes === 4 * GiB, 'and the copy is where it was');
});
