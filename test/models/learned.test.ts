// What loads have shown: raised at once, lowered only where the engine takes all up front, kept whole, and told.
import fc from 'fast-check';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { LeasePart } from '../../protocol/index.js';
import { adjusted, errorsOf, learn, type Estimated, type LearnedKey, type LearnedSize, type Observation } from '../../src/models/learned/learned-size.js';
import { learnedFolder, listLearned, readLearned, writeLearned } from '../../src/models/learned/learned-store.js';
import { withLearned } from '../../src/models/estimate/learned.js';
import type { ModelEstimate } from '../../src/models/estimate/estimate.js';
import { exact } from '../../src/models/estimate/figure.js';
import { defaultOptions } from '../../src/models/estimate/options.js';
import { ask, model, read, rig } from '../workers/in-process.js';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-learned-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const key: LearnedKey = { model: 'm', engine: 'llama', versions: { a: '1' }, card: 'H200', cardBytes: 1_000_000, driver: '580' };
const part = (name: string, bytes: number, upFront = true): LeasePart => ({ name, kind: name === 'weights' ? 'weights' : 'compute', bytes, upFront });
const estimateOf = (parts: readonly LeasePart[], perToken = 2): Estimated => ({ parts, contextBytes: (tokens) => tokens * perToken });
const seen = (estimate: Estimated, parts: readonly LeasePart[], changes: Partial<Observation> = {}): Observation => ({
  key, source: '/m.gguf', estimate, parts, contexts: [], residentBytes: parts.reduce((sum, { bytes }) => sum + bytes, 0), freshLoad: true, at: '2026-11-30T00:00:00.000Z', ...changes,
});

t.test('a part taken up front is asked for as it was measured, in either direction', async (t) => {
  const estimate = estimateOf([part('weights', 1_000), part('compute', 500)]);
  const known = learn(null, seen(estimate, [part('weights', 1_200), part('compute', 300)]));
  t.same(adjusted(estimate, known).parts.map(({ bytes }) => bytes), [1_200, 300]);
  t.same(adjusted(estimateOf([part('weights', 900), part('compute', 600)]), known).parts.map(({ bytes }) => bytes), [1_200, 600], 'of another estimate it only raises');
});

t.test('any other part is only ever raised, and never forgets its most', async (t) => {
  const estimate = estimateOf([part('cache', 1_000, false)]);
  const high = learn(null, seen(estimate, [part('cache', 1_500, false)]));
  const low = learn(high, seen(estimate, [part('cache', 700, false)]));
  t.equal(adjusted(estimate, low).parts[0]?.bytes, 1_500);
  t.equal(adjusted(estimate, learn(null, seen(estimate, [part('cache', 700, false)]))).parts[0]?.bytes, 1_000);
  t.equal(low.loads, 2);
});

t.test('B11: what is taken on first use, and parts that nobody foresaw, are in the next estimate', async (t) => {
  const estimate = estimateOf([part('weights', 1_000)]);
  const loaded = learn(null, seen(estimate, [part('weights', 1_000), part('surprise', 50)]));
  const used = learn(loaded, seen(estimate, [part('weights', 1_000), part('surprise', 50)], { residentBytes: 1_350, freshLoad: false }));
  t.same(adjusted(estimate, used).parts.map(({ name, bytes, upFront }) => [name, bytes, upFront]), [['weights', 1_000, true], ['surprise', 50, true], ['grown', 300, false]]);
  t.same([used.loads, errorsOf(used)[0]?.measuredBytes], [1, 1_350]);
});

t.test('a context is learned by one factor for all sizes, so that none falls below a smaller one', async (t) => {
  const estimate = estimateOf([part('weights', 1)], 10);
  const contexts = [{ name: 'context:1', tokens: 100 }, { name: 'context:2', tokens: 1_000 }];
  const known = learn(null, seen(estimate, [part('weights', 1), { name: 'context:1', kind: 'context', bytes: 1_100, upFront: true }, { name: 'context:2', kind: 'context', bytes: 9_000, upFront: true }], { contexts }));
  const after = adjusted(estimate, known);
  t.same([after.contextBytes(100), after.contextBytes(1_000)], [1_100, 11_000]);
  t.same(after.parts.map(({ name }) => name), ['weights'], 'and is no part of the model');
  fc.assert(fc.property(fc.nat(100_000), fc.nat(1_000), (tokens, more) => after.contextBytes(tokens) <= after.contextBytes(tokens + more)), { seed: 1 });
});

t.test('sizes are kept whole, each under all that it depends on', async (t) => {
  const size = learn(null, seen(estimateOf([part('weights', 1_000)]), [part('weights', 1_200)]));
  await writeLearned(folder, size);
  t.same(await readLearned(folder, key), size);
  for (const other of [{ model: 'n' }, { engine: 'x' }, { versions: { a: '2' } }, { card: 'H100' }, { cardBytes: 2 }, { driver: null }]) t.equal(await readLearned(folder, { ...key, ...other }), null);
  const [name = ''] = readdirSync(folder);
  t.equal(statSync(join(folder, name)).mode & 0o777, 0o600);
  await Promise.all(Array.from({ length: 20 }, (_, loads) => writeLearned(folder, { ...size, loads })));
  t.equal(readdirSync(folder).length, 1, 'twenty writers leave one file, and nothing beside it');
  t.ok(await readLearned(folder, key));
  const text = readFileSync(join(folder, name), 'utf8');
  for (const damaged of [text.slice(0, -5), '{}', 'null', text.replace('"version":1', '"version":2'), text.replace('1200', '-1'), 'x'.repeat(300_000)]) {
    writeFileSync(join(folder, name), damaged);
    t.equal(await readLearned(folder, key), null, `${damaged.slice(0, 20)}… is none`);
    t.same(await listLearned(folder), []);
  }
  t.same(await listLearned('/nowhere'), []);
  await t.rejects(writeLearned('/dev/null/x', size));
});

t.test('an estimate is learned where loads have measured all of it, and says of which', async (t) => {
  const own: ModelEstimate = {
    model: '/m.gguf', options: { ...defaultOptions, backend: 'llama', contextTokens: 100 }, source: 'estimated', host: exact(0, ''), kvBytesPerToken: 2,
    cards: [{ rank: 0, device: null, weights: exact(1_000, 'own'), kv: exact(200, 'own'), compute: exact(50, 'own'), projector: null, draft: null, total: exact(1_250, 'own'), loadPeak: exact(1_250, 'own') }],
  };
  const estimated = estimateOf([part('weights', 1_000)], 2.5);
  const measured = (weights: number, perContext: number, changes: Partial<Observation> = {}): LearnedSize => learn(null, seen(estimated, [part('weights', weights), part('context:1', perContext)], { contexts: [{ name: 'context:1', tokens: 100 }], ...changes }));
  const sizes = ({ source, cards: [card] }: ModelEstimate): readonly unknown[] => [source, card?.weights.bytes, card?.kv.bytes, card?.compute.bytes, card?.total.bytes, card?.loadPeak.bytes];
  const once = measured(1_100, 300);
  t.strictSame(sizes(withLearned(own, [once])), ['learned', 1_100, 200, 100, 1_400, 1_400]);
  t.match(withLearned(own, [once]).cards[0]?.weights.how, 'learned by 1 load on H200');
  t.equal(withLearned(own, [once]).cards[0]?.total.bytes, adjusted(estimated, once).parts.reduce((sum, { bytes }) => sum + bytes, 0) + adjusted(estimated, once).contextBytes(100), 'what the next load asks for');
  t.strictSame(sizes(withLearned(own, [measured(900, 200)])), ['learned', 900, 200, 0, 1_100, 1_100], 'lower, too: the engine takes all of it at once');
  const other = learn(null, seen(estimateOf([part('weights', 700)]), [part('weights', 650)]));
  t.strictSame(sizes(withLearned(own, [other])), ['estimated', 1_000, 200, 50, 1_250, 1_250], 'of the weights of another file it only raises; and no context was seen');
  t.strictSame(sizes(withLearned(own, [measured(1_100, 250, { residentBytes: 1_500 })])), ['learned', 1_100, 200, 200, 1_500, 1_500], 'B11: what was taken on first use is in it');
  const two = withLearned(own, [once, { ...measured(1_050, 250), key: { ...key, card: 'L4' } }]);
  t.match(two, { source: 'learned', cards: [{ weights: { leastBytes: 1_050, bytes: 1_100, how: 'learned by 1 load on H200, 1 load on L4' }, compute: { leastBytes: 50, bytes: 100 } }] });
  const untouched: readonly (readonly [string, ModelEstimate, readonly LearnedSize[]])[] = [
    ['nothing is known', own, []], ['declared', { ...own, source: 'declared' }, [once]], ['on the CPU', { ...own, options: { ...own.options, onCard: false } }, [once]], ['another cache', { ...own, options: { ...own.options, kvDtype: 'q8_0' } }, [once]],
    ['another engine', { ...own, options: { ...own.options, backend: 'vllm' } }, [once]], ['layers left to the CPU', own, [{ ...once, parts: once.parts.map((each) => ({ ...each, name: 'weights:3/9' })) }]],
  ];
  for (const [what, estimate, known] of untouched) t.strictSame(withLearned(estimate, known), estimate, what);
});

t.test('an error is what was measured beside what was estimated', async (t) => {
  const size: LearnedSize = learn(null, seen(estimateOf([part('weights', 1_000)]), [part('weights', 1_100)]));
  t.match(errorsOf(size), [{ source: '/m.gguf', engine: 'llama', card: 'H200', contextTokens: null, estimatedBytes: 1_000, measuredBytes: 1_100, loads: 1 }]);
  t.ok(Math.abs((errorsOf(size)[0]?.error ?? 0) - 0.1) < 1e-9);
  t.equal(errorsOf({ ...size, parts: [] })[0]?.error, 0);
  const contexts = [{ tokens: 4_096, estimatedBytes: 400, measuredBytes: 600 }, { tokens: 512, estimatedBytes: 50, measuredBytes: 50 }];
  const rows = errorsOf({ ...size, contexts, grownBytes: 10 }).map(({ contextTokens, estimatedBytes, measuredBytes }) => [contextTokens, estimatedBytes, measuredBytes]);
  t.strictSame(rows, [[512, 1_050, 1_160], [4_096, 1_400, 1_710]], 'each setting by itself, with what all of them have');
});

t.test('B25: a worker asks for what it measured the next time, and so does the worker after it', async (t) => {
  const state = mkdtempSync(join(tmpdir(), 'lh-learned-'));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 2, actualWeightsBytes: 1_900 });
  const first = await rig(t, { folder: state });
  const caller = await first.caller();
  await read(caller.generate(ask(spec)));
  await first.broker.move({ target: 'none' }).answer;
  await read(caller.generate(ask(spec)));
  const [before, after] = first.broker.all('request_vram_budget');
  t.match([before?.source, before?.parts[0]?.bytes], ['estimated', 1_000]);
  t.match([after?.source, after?.parts[0]?.bytes], ['learned', 1_900]);
  await first.close();
  const second = await rig(t, { folder: state });
  await read((await second.caller()).generate(ask(spec)));
  t.match(await second.broker.heard('request_vram_budget'), { source: 'learned', parts: [{ name: 'weights', bytes: 1_900 }, { name: 'context:1', bytes: 1_024 }] });
  await second.close();
  const [kept] = await listLearned(learnedFolder(state));
  t.match(kept, { source: spec.source, loads: 3, parts: [{ name: 'weights', estimatedBytes: 1_000, measuredBytes: 1_900 }], contexts: [{ tokens: 512, estimatedBytes: 1_024, measuredBytes: 1_024 }] });
});
