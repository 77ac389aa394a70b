// Admission: what is granted, what is denied at once, and what every number of an answer means.
import t from 'tap';
import { explainRecords } from '../../../broker/core/index.js';
import { all, card0, context, GiB, KiB, MiB, only, plusTenth, Stage, weights } from './harness.js';

t.test('B17: twelve processes with a floor of 500 MiB get their models only as long as the card has room for both', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 8 * GiB, floorBytes: 500 * MiB });
  const client = stage.session();
  let loaded = 0;
  for (let index = 1; index <= 12; index++) {
    const placed = stage.place(client, `tiny-${String(index)}`);
    for (const spawned of all(placed.effects, 'spawn')) {
      stage.ready(spawned.generation, { floorBytes: 500 * MiB });
      const asked = stage.ask(spawned.generation, `tiny-${String(index)}`, 200 * MiB, { policy: { pinned: true } });
      const grant = all(asked.effects, 'grant')[0];
      if (grant === undefined) continue;
      stage.load(spawned.generation, grant.lease, 200 * MiB);
      loaded++;
    }
  }
  test.equal(loaded, 11, 'eleven times 720 MiB fit in 8 GiB, twelve do not');
  test.equal(stage.cardView().floorBytes, 11 * 500 * MiB);
  test.ok(stage.chargedBytes() <= 8 * GiB);
  test.end();
});

t.test('B19: a card without a cap says null where there is none, and no figure of any status is above its total', (test) => {
  const stage = new Stage();
  stage.card();
  stage.card('GPU-1', { totalBytes: 8 * GiB, reserveBytes: 2 * GiB });
  test.equal(stage.cardView('GPU-1').availableBytes, 6 * GiB);
  const fresh = new Stage();
  fresh.samples = false;
  fresh.card();
  fresh.card('GPU-1', { totalBytes: 8 * GiB, yieldFreeBytes: GiB });
  const unread = { foreignBytes: null, sampledUsedBytes: null, sampleAgeMs: null, missing: null, loadToken: null, lost: null, closed: null, thrashing: null };
  test.match([fresh.cardView(), fresh.cardView('GPU-1')], [{ ...unread, yields: null }, { ...unread, yields: { freeBytes: GiB } }], 'absence is null, and no number');
  test.match(fresh.view(), { host: null });
  const holder = stage.session('holder');
  for (const device of [card0, 'GPU-1']) {
    stage.resident(holder, 'there', 4 * GiB, { device });
    stage.truth(device).foreignBytes = 2 * GiB;
    stage.sample(device);
    stage.ask(holder, 'waits', device === card0 ? 19 * GiB : 5 * GiB, { device, policy: { pinned: true } });
  }
  const numbersIn = (value: object): readonly (readonly [string, number])[] => Object.entries(value).filter((entry): entry is [string, number] => entry[0].endsWith('Bytes') && typeof entry[1] === 'number');
  const { cards, leases, waiting } = stage.view();
  const records = explainRecords(stage.core, { count: 100 });
  let looked = 0;
  for (const card of cards) {
    const shown = [card, ...leases.filter(({ device }) => device === card.device), ...waiting.filter(({ device }) => device === card.device), ...records.flatMap(({ device, numbers }) => (device === card.device && numbers !== null ? [numbers] : []))];
    for (const [name, value] of shown.flatMap(numbersIn)) {
      looked++;
      if (value > card.totalBytes) test.fail(`${card.device}: ${name} is ${String(value)}`);
    }
  }
  test.ok(looked > 60, `${String(looked)} figures`);
  const largest = Math.max(...cards.map(({ totalBytes }) => totalBytes));
  const everywhere: string[] = [];
  JSON.stringify([stage.view(), records], (name, value: unknown) => {
    if (typeof value === 'number' && name.endsWith('Bytes') && value > largest) everywhere.push(`${name} is ${String(value)}`);
    if (typeof value === 'number' && !Number.isSafeInteger(name === 'costMs' ? Math.round(value) : value)) everywhere.push(`${name} is no whole number: ${String(value)}`);
    return value;
  });
  test.strictSame(everywhere, [], 'nor one inside parts, counters or victims');
  test.end();
});

t.test('B01: four gibibytes of weights with a short context are leased at once, with a long one refused at once, with the arithmetic', (test) => {
  const kvBytesPerToken = 524_288;
  const stage = new Stage();
  stage.card(card0, { totalBytes: 24 * GiB });
  const holder = stage.session('holder');
  const ask = (tokens: number) => stage.ask(holder, `m${String(tokens)}`, 0, { parts: [weights(4 * GiB), context(tokens * kvBytesPerToken)] });
  const short = ask(2_048);
  test.equal(only(short.effects, 'grant').chargedBytes, plusTenth(5 * GiB), '5.5 GiB');
  const denied = only(ask(65_536).effects, 'deny');
  const text = explainRecords(stage.core).find(({ verdict }) => verdict === 'denied')?.text ?? '';
  test.match(denied, { code: 'never_fits', numbers: { needBytes: plusTenth(36 * GiB), totalBytes: 24 * GiB } });
  test.match(text, /39\.6 GiB/);
  test.equal(all(stage.effects, 'move').length, 0, 'nothing is put away for what can never be');
  test.end();
});

t.test('B20: a declared size is leased with its headroom', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const grant = only(stage.ask(holder, 'unparsable', 6 * GiB).effects, 'grant');
  test.equal(grant.chargedBytes, plusTenth(6 * GiB));
  test.end();
});

t.test('B26, R266: of fifty requests at once for 6 of 8 GiB exactly one is granted, the others wait with their numbers', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 8 * GiB });
  const holders = Array.from({ length: 50 }, () => stage.session('holder'));
  const effects = holders.flatMap((holder, index) => stage.ask(holder, `m${String(index)}`, 6 * GiB).effects);
  test.equal(all(effects, 'grant').length, 1);
  test.equal(all(effects, 'wait').length, 49);
  test.equal(stage.cardView().leasedBytes, plusTenth(6 * GiB));
  test.ok(stage.counter('maxOverReserveBytes') <= 0, 'charges and holds never exceed the card');
  const waiting = explainRecords(stage.core, { count: 500 }).filter((record) => record.verdict === 'waiting');
  test.ok(waiting.every((record) => record.numbers?.needBytes === plusTenth(6 * GiB)));
  test.end();
});

t.test('B83: a worker’s request for 0 bytes is granted on a full card, on the CPU and on an unread card; nothing is evicted', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 4 * GiB });
  stage.card('CPU-0', { kind: 'cpu', totalBytes: 0, confirms: 'none', floorBytes: null });
  const worker = stage.worker();
  stage.resident(worker, 'big', Math.floor(3.6 * GiB));
  const onCard = stage.ask(worker, 'cpu-only', 0, { parts: [] });
  test.equal(only(onCard.effects, 'grant').chargedBytes, 0);
  const onCpu = stage.ask(worker, 'cpu-engine', 0, { device: 'CPU-0', parts: [] });
  const grant = only(onCpu.effects, 'grant');
  test.match(explainRecords(stage.core, { id: grant.explain })[0]?.text, /cpu, not leased/);
  test.equal(all([...onCard.effects, ...onCpu.effects], 'move').length, 0);
  stage.truth().failing = 'failed';
  stage.sample();
  stage.pass(5_000);
  test.equal(all(stage.ask(worker, 'another', 0, { parts: [] }).effects, 'grant').length, 1);
  test.equal(only(stage.ask(worker, 'weighty', 1, { device: 'CPU-0' }).effects, 'deny').code, 'never_fits', 'the CPU has no card bytes');
  test.end();
});

t.test('a holder’s request for nothing, on the card and in memory, is refused with what is wrong', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const host = { neededBytes: 0, copyBytes: 0, peakBytes: 0 };
  for (const asked of [{ parts: [] }, { parts: [], host }]) {
    test.match(only(stage.ask(holder, 'nothing', 0, asked).effects, 'deny'), { code: 'bytes_invalid', details: { field: 'bytes', value: '0', minimum: '1' } });
  }
  test.equal(all(stage.ask(holder, 'in memory', 0, { parts: [], host: { ...host, neededBytes: GiB } }).effects, 'grant').length, 1);
  const lease = stage.granted(holder, 'something', GiB);
  test.equal(all(stage.ask(holder, 'something', 0, { parts: [], lease }).effects, 'deny').length, 0, 'what it has it may ask for again');
  test.end();
});

t.test('what can never fit is denied at once with the numbers and with what could be had; nothing is evicted for it', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 24 * GiB, reserveBytes: 1 * GiB });
  stage.card('GPU-1', { totalBytes: 48 * GiB });
  const holder = stage.session('holder');
  stage.resident(holder, 'idle', 10 * GiB);
  stage.pass(5_000);
  stage.sample();
  stage.sample('GPU-1');
  const { effects } = stage.ask(holder, 'huge', 21 * GiB);
  const deny = only(effects, 'deny');
  test.equal(deny.code, 'never_fits');
  test.equal(all(effects, 'move').length, 0);
  test.equal(deny.numbers?.needBytes, plusTenth(21 * GiB));
  test.equal(deny.numbers?.availableBytes, 23 * GiB - plusTenth(10 * GiB));
  test.equal(deny.numbers?.evictableBytes, plusTenth(10 * GiB));
  test.same(deny.roomElsewhere, ['GPU-1']);
  const could = deny.couldHaveBytes ?? 0;
  test.equal(all(stage.ask(holder, 'fits', could).effects, 'grant').length, 1, 'what could be had is granted');
  test.equal(all(stage.ask(holder, 'one more', 1).effects, 'move').length, 1, 'and not a byte is left without evicting');
  test.end();
});

t.test('bad requests are typed denials that name the thing; the ledger and everybody else are untouched', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const shown = (): object[] => stage.view().cards.map((card) => ({ ...card, sampleAgeMs: 0 }));
  const before = shown();
  for (const bytes of [-1, 0.5, Number.NaN, 2 ** 53, Infinity]) {
    const deny = only(stage.ask(holder, 'm', bytes).effects, 'deny');
    test.equal(deny.code, 'bytes_invalid', String(bytes));
    test.equal(deny.details['value'], String(bytes));
  }
  test.equal(only(stage.ask(holder, 'm', 1, { peakBytes: -3 }).effects, 'deny').details['field'], 'peakBytes');
  const sum = [weights(2 ** 52), context(2 ** 52)];
  test.equal(only(stage.ask(holder, 'm', 0, { parts: sum }).effects, 'deny').code, 'bytes_invalid', 'each part may be fine and the sum not');
  const unknown = only(stage.ask(holder, 'm', 1, { device: 'GPU-zzz' }).effects, 'deny');
  test.match(unknown, { code: 'device_unknown', details: { device: 'GPU-zzz', known: card0 } });
  test.equal(only(stage.ask(holder, 'm', 1, { lease: `${holder}-l99` }).effects, 'deny').code, 'lease_unknown');
  const other = stage.session('holder');
  const lease = stage.granted(other, 'theirs', GiB);
  test.equal(only(stage.ask(holder, 'theirs', 1, { lease }).effects, 'deny').code, 'lease_not_yours');
  stage.release(other, lease, 'unused');
  test.same(shown(), before);
  test.equal(only(stage.place(stage.session(), 'm', { engine: 'none such' }).effects, 'deny').code, 'engine_unknown');
  test.end();
});

t.test('limits deny with the limit: leases, queue, workers', (test) => {
  const stage = new Stage({ limits: { leasesMax: 2, queuedRequestsPerCardMax: 1, workersMax: 1 } });
  stage.card(card0, { totalBytes: 4 * GiB });
  const holder = stage.session('holder');
  stage.granted(holder, 'a', 1 * GiB);
  const b = stage.granted(holder, 'b', 1 * GiB);
  test.equal(only(stage.ask(holder, 'c', KiB).effects, 'deny').code, 'too_many_leases');
  stage.release(holder, b, 'unused');
  test.equal(all(stage.ask(holder, 'd', 3 * GiB).effects, 'wait').length, 1);
  test.match(only(stage.ask(holder, 'e', 3 * GiB).effects, 'deny'), { code: 'queue_full', details: { limit: '1' } });
  const other = new Stage({ limits: { workersMax: 1 } });
  other.card();
  const caller = other.session();
  const first = only(other.place(caller, 'x').effects, 'spawn');
  other.ready(first.generation);
  other.granted(first.generation, 'x', GiB);
  test.match(only(other.place(caller, 'y', { engine: 'python' }).effects, 'deny'), { code: 'too_many_workers', details: { limit: '1' } });
  test.end();
});

t.test('B29: unknown, failed, not supported and zero are four readings; none of them becomes a number', (test) => {
  for (const reading of ['unknown', 'failed', 'timed_out'] as const) {
    const stage = new Stage();
    stage.card();
    const holder = stage.session('holder');
    stage.truth().failing = reading;
    stage.sample();
    stage.pass(3_000);
    const { effects } = stage.ask(holder, 'm', GiB);
    test.equal(all(effects, 'grant').length, 0, reading);
    test.equal(stage.cardView().availableBytes, null);
    test.equal(stage.cardView().missing?.reading, reading);
    test.ok((stage.cardView().missing?.sinceMs ?? 0) >= 3_000);
    test.equal(stage.cardView().sampledUsedBytes, 0, 'the last good reading is kept, with its age');
    stage.truth().failing = null;
    test.equal(all(stage.sample(), 'grant').length, 1, 'and decided when it answers again');
  }
  const never = new Stage();
  never.card();
  const holder = never.session('holder');
  never.truth().failing = 'unsupported';
  never.sample();
  test.match(only(never.ask(holder, 'm', GiB).effects, 'deny'), { code: 'device_unmeasured', details: { reading: 'unsupported' } });
  const full = new Stage();
  full.card();
  full.truth().foreignBytes = 24 * GiB;
  full.sample();
  test.equal(full.cardView().availableBytes, 0, 'zero free is truly full');
  test.end();
});

t.test('B104: a reading of more used or free than there is, of no number, or in another unit is refused, told once, and the last good one kept', (test) => {
  const stage = new Stage();
  stage.card();
  stage.truth().foreignBytes = 3 * GiB;
  stage.sample();
  stage.samples = false;
  const worker = stage.worker();
  // Free is what is not used: more of it than the total is a use below zero.
  const nonsense = [[25 * GiB, 24 * GiB], [-31 * GiB, 24 * GiB], [Number.NaN, 24 * GiB], [1.5, 24 * GiB], [3_072, 24_576], [3 * GiB * 1_024, 24 * GiB * 1_024], [0, 0], [3 * GiB, Infinity]] as const;
  for (const [usedBytes, totalBytes] of nonsense) {
    stage.nowUs += 1_000;
    stage.send({ type: 'sampled', device: card0, takenAtUs: stage.nowUs, usedBytes, totalBytes, truth: 'nvml', processes: [] });
    test.match(stage.cardView(), { sampledUsedBytes: 3 * GiB, foreignBytes: 3 * GiB, missing: { reading: 'failed' } }, `${String(usedBytes)} of ${String(totalBytes)}`);
  }
  test.equal(all(stage.effects, 'publish').filter(({ name }) => name === 'sample_lost').length, 1, 'told once');
  test.equal(stage.counter('samplesFailed'), nonsense.length);
  test.ok((stage.cardView().sampleAgeMs ?? 0) >= nonsense.length, 'with its age');
  test.equal(all(stage.ask(worker, 'a', 9 * GiB).effects, 'grant').length, 1, 'good enough while it is young');
  stage.pass(stage.core.options.limits.sampleMaxAgeMs + 250);
  test.equal(stage.cardView().availableBytes, null, 'and no longer');
  stage.sample();
  test.match(stage.cardView(), { missing: null, sampledUsedBytes: 3 * GiB });
  test.end();
});

t.test('B191: with no probe the ledger alone grants, flagged unverified; and a holder may claim again what it has', (test) => {
  const blind = new Stage({ allowLedgerOnly: true });
  blind.samples = false;
  blind.card(card0, { totalBytes: 16 * GiB, confirms: 'none' });
  blind.send({ type: 'sample_failed', device: card0, reading: 'unsupported', reason: 'no probe' });
  const owner = blind.session('holder');
  const grant = only(blind.ask(owner, 'm', 10 * GiB).effects, 'grant');
  test.equal(explainRecords(blind.core, { id: grant.explain })[0]?.unverified, true);
  test.equal(blind.cardView().truth, 'ledger');
  test.equal(all(blind.ask(owner, 'n', 10 * GiB).effects, 'grant').length, 0, 'the ledger still counts');

  const stage = new Stage();
  stage.card(card0, { totalBytes: 12 * GiB });
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'm', 6 * GiB);
  const chargedBytes = stage.chargedBytes();
  for (const foreignBytes of [0, 5 * GiB]) {
    stage.truth().foreignBytes = foreignBytes;
    stage.sample();
    for (const time of ['renewed', 'and again']) test.equal(only(stage.ask(holder, 'm', 6 * GiB, { lease }).effects, 'grant').lease, lease, `${time}, with ${String(12 - 6 - foreignBytes / GiB)} GiB free`);
    test.equal(stage.chargedBytes(), chargedBytes, 'and charged once');
  }
  test.equal(all(stage.ask(holder, 'm', 6 * GiB).effects, 'grant').length, 0, 'without its name it is another 6 GiB');
  test.end();
});

t.test('B37, D14: an old sample is not used; one that is young serves unless bytes released since are needed', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'a', 18 * GiB);
  stage.samples = false;
  stage.take(holder, -18 * GiB);
  stage.release(holder, lease);
  const small = stage.ask(holder, 'small', 2 * GiB);
  test.equal(all(small.effects, 'grant').length, 1, 'needs nothing that was released since: the sample serves');
  const large = stage.ask(holder, 'large', 12 * GiB);
  test.equal(all(large.effects, 'grant').length, 0, 'needs what was released since');
  test.equal(all(large.effects, 'move').length, 0, 'and evicts nothing for it');
  test.equal(all(stage.sample(card0, stage.nowUs - 1_000_000), 'grant').length, 0, 'a sample taken before the release does not show it');
  test.equal(all(stage.sample(), 'grant').length, 1);
  stage.pass(2_500);
  const late = stage.ask(holder, 'late', MiB);
  test.equal(all(late.effects, 'grant').length, 0, 'no sample is younger than sampleMaxAgeMs');
  test.equal(all(late.effects, 'sample').length + all(stage.effects.slice(-200), 'sample').length > 0, true, 'so one is asked for');
  stage.truth().failing = 'failed';
  stage.sample();
  stage.pass(1_000);
  stage.truth().failing = null;
  test.equal(all(stage.sample(), 'grant').length, 1, 'and decided when it comes');
  test.end();
});

t.test('a sample judges only grants made before it was taken, by its own time and not by its arrival', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 10 * GiB });
  const holder = stage.session('holder');
  stage.samples = false;
  const takenAtUs = stage.nowUs;
  stage.nowUs += 5_000;
  stage.granted(holder, 'a', 5 * GiB);
  stage.sample(card0, takenAtUs + 1);
  test.equal(stage.cardView().availableBytes, 10 * GiB - plusTenth(5 * GiB), 'all of the grant is still to come');
  const other = stage.ask(holder, 'b', 5 * GiB);
  test.equal(all(other.effects, 'grant').length, 0);
  test.end();
});

t.test('bytes that are reported and not there are no room: the figure of the process counts', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 24 * GiB });
  stage.truth().foreignBytes = 6 * GiB;
  const liar = stage.session('holder');
  const lease = stage.granted(liar, 'lie', 10 * GiB);
  stage.begin(liar, lease);
  stage.take(liar, 2 * GiB);
  stage.report(liar, lease, 'resident', 10 * GiB, { parts: [weights(10 * GiB)] });
  stage.sample();
  test.equal(stage.cardView().availableBytes, 24 * GiB - 6 * GiB - plusTenth(10 * GiB), 'what it has not taken yet may still come');
  test.end();
});

t.test('R14: a grant counts from its own step on, and ends with its release, with a recall or with its process', (test) => {
  const ends: Readonly<Record<string, (stage: Stage, worker: string, lease: string) => unknown>> = {
    release: (stage, worker, lease) => stage.release(worker, lease, 'unused'),
    recall: (stage, worker, lease) => {
      const { command } = only(stage.pass(10_250), 'recall');
      stage.send({ type: 'recall_answered', generation: worker, command, lease, begun: false });
    },
    exit: (stage, worker) => stage.exit(worker),
  };
  for (const [name, end] of Object.entries(ends)) {
    const stage = new Stage();
    stage.card();
    const worker = stage.worker();
    const lease = stage.granted(worker, 'a', 14 * GiB);
    const { request, effects } = stage.ask(stage.session('holder'), 'b', 12 * GiB);
    test.equal(all(effects, 'grant').length, 0, `${name}: promised bytes are not promised twice`);
    end(stage, worker, lease);
    test.match(all(stage.effects, 'grant').at(-1), { request }, `${name}: nothing of it was ever taken, so it is free at once`);
    test.equal(stage.chargedBytes(), plusTenth(12 * GiB));
  }
  test.end();
});

t.test('R27, R54: what a process says it holds at this moment judges nobody, neither itself nor another', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 8 * GiB);
  const holder = stage.session('holder');
  const { sampleAgeMs: _, ...before } = stage.cardView();
  for (const bytes of [0, 8 * GiB, 24 * GiB]) {
    for (const generation of [worker, holder]) test.same(stage.send({ type: 'heartbeat', generation, reserved: [{ device: card0, bytes }] }), [], `${String(bytes)} by ${generation}`);
    const { sampleAgeMs: __, ...now } = stage.cardView();
    test.same(now, before);
    test.equal(stage.lease(lease)?.residentBytes, 8 * GiB);
  }
  test.equal(all(stage.ask(holder, 'b', 13 * GiB).effects, 'grant').length, 1, 'and what the card shows is what is granted on');
  test.end();
});

t.test('D15: foreign use is what nobody of ours explains; it is refused with its size and nobody is evicted for nothing', (test) => {
  const stage = new Stage();
  stage.card();
  stage.truth().foreignBytes = 15 * GiB;
  stage.sample();
  const holder = stage.session('holder');
  test.equal(stage.cardView().foreignBytes, 15 * GiB);
  const { effects } = stage.ask(holder, 'm', 12 * GiB);
  test.match(only(effects, 'wait').reason, /15\.0 GiB used by processes we do not own/);
  test.equal(all(effects, 'move').length, 0);
  test.end();
});

t.test('B56: work that a stranger held up resumes within one reading after it has left', (test) => {
  const stage = new Stage();
  stage.card();
  stage.truth().foreignBytes = 16 * GiB;
  stage.sample();
  const holder = stage.session('holder');
  stage.ask(holder, 'm', 10 * GiB);
  test.equal(all(stage.pass(20_000), 'grant').length, 0);
  stage.truth().foreignBytes = 0;
  test.equal(all(stage.pass(750), 'grant').length, 1);
  test.end();
});

t.test('the exclusive exception: marked by the operator, of a size that is no estimate, and fitting only without the headroom', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 24 * GiB });
  const holder = stage.session('holder');
  test.equal(only(stage.ask(holder, 'm', 23 * GiB).effects, 'deny').code, 'never_fits');
  test.equal(only(stage.ask(holder, 'm', 23 * GiB, { policy: { exclusive: true } }).effects, 'deny').code, 'never_fits', 'an estimate is not enough');
  const grant = only(stage.ask(holder, 'm', 23 * GiB, { policy: { exclusive: true }, source: 'measured' }).effects, 'grant');
  test.equal(grant.chargedBytes, 23 * GiB);
  test.match(explainRecords(stage.core, { id: grant.explain })[0]?.text, /exclusive/);
  for (const source of ['declared', 'learned'] as const) {
    const cold = new Stage();
    cold.card(card0, { totalBytes: 24 * GiB });
    const worker = cold.worker();
    test.equal(only(cold.ask(worker, 'm', 23 * GiB, { policy: { exclusive: true }, source }).effects, 'grant').chargedBytes, 23 * GiB, source);
    test.equal(all(cold.ask(worker, 'n', 1 * GiB).effects, 'grant').length, 0, 'nothing else fits beside it');
    test.equal(only(cold.ask(cold.worker(), 'o', 24 * GiB + 1, { policy: { exclusive: true }, source }).effects, 'deny').code, 'never_fits');
  }
  const floored = new Stage();
  floored.card(card0, { totalBytes: 24 * GiB });
  const costly = floored.worker({ floorBytes: 2 * GiB });
  test.equal(only(floored.ask(costly, 'm', 21 * GiB, { policy: { exclusive: true }, source: 'declared' }).effects, 'grant').chargedBytes, 21 * GiB, 'its worker\'s floor counts');
  const other = new Stage();
  other.card();
  const one = other.session('holder');
  const small = only(other.ask(one, 'm', 10 * GiB, { policy: { exclusive: true }, source: 'measured' }).effects, 'grant');
  test.equal(small.chargedBytes, plusTenth(10 * GiB), 'where the headroom fits it is charged');
  test.end();
});

t.test('a lost card grants nothing and says so, to those who wait and to those who come; its ledger is kept', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  stage.resident(holder, 'a', 10 * GiB, { policy: { pinned: true } });
  stage.ask(holder, 'b', 18 * GiB);
  const lost = stage.send({ type: 'card_lost', device: card0, reason: 'fell off the bus' });
  test.equal(only(lost, 'deny').code, 'device_lost');
  test.equal(only(stage.ask(holder, 'c', 1).effects, 'deny').code, 'device_lost');
  test.equal(stage.chargedBytes(), plusTenth(10 * GiB));
  stage.send({ type: 'card_added', device: card0, name: 'a card', kind: 'gpu', totalBytes: 24 * GiB, reserveBytes: 0, confirms: 'process', floorBytes: 0 });
  test.equal(all(stage.ask(holder, 'd', GiB).effects, 'grant').length, 1);
  test.end();
});

t.test('R56: explain records hold every number and are found by id, model and card, newest first, in a bounded ring', (test) => {
  const stage = new Stage({ limits: { explainRecordsMax: 8 } });
  stage.card();
  const holder = stage.session('holder');
  for (let index = 0; index < 20; index++) stage.granted(holder, `m${String(index)}`, MiB);
  const records = explainRecords(stage.core, { count: 100 });
  test.equal(records.length, 8);
  test.same(records.map((record) => record.model), Array.from({ length: 8 }, (_, index) => `m${String(19 - index)}`));
  test.equal(explainRecords(stage.core, { model: 'm15' }).length, 1);
  test.equal(explainRecords(stage.core, { model: 'm1' }).length, 0, 'the oldest have made room');
  const [record] = records;
  test.match(record, { verdict: 'granted', device: card0, class: 'normal', unverified: false, numbers: { requestedBytes: MiB, needBytes: plusTenth(MiB), totalBytes: 24 * GiB, truth: 'nvml' } });
  test.equal(explainRecords(stage.core, { id: record?.id ?? '' })[0], record);
  test.end();
});
