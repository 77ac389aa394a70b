// The llama worker on a real card, as far as its bytes and its refusals go: a fake driver, llama.cpp on the CPU.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { createBroker, type EngineCommand, type OwnedCard } from '../../broker/shell/index.js';
import type { CardDescription, Reading } from '../../broker/devices/index.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import { createOrchestrator, type LedgerState, type Orchestrator } from '../../src/orchestrator/index.js';
import { createLlamaEngine, type LlamaEngineOptions } from '../../workers/llama/engine.js';
import { riseOf } from '../../workers/llama/card-start.js';
import { FloorMeter } from '../../workers/llama/floor-meter.js';
import { visibilityFault } from '../../workers/llama/visible-devices.js';
import type { Engine, EngineContext, VisibleCard } from '../../workers/runtime/engine.js';
import { fakeCuda, floorBytes } from '../fixtures/fake-cuda.js';
import { FakeDriver } from '../fixtures/fake-driver.js';
import { randomModel, writeModel } from '../fixtures/gguf-models.js';
import { collect, CountingCard, engineContext, never, promptCall, specOf, type ContextNotes } from '../fixtures/llama-engine.js';
import { MiB, quick, until } from '../integration/support.js';

const folder = mkdtempSync(join(tmpdir(), 'lh-card-'));
t.teardown(() => { rmSync(folder, { recursive: true, force: true }); });

const gpu: VisibleCard = { device: 'GPU-11111111-2222', name: 'NVIDIA Test', totalBytes: 24 * 1024 * MiB, simulated: false };
const workerProgram = fileURLToPath(new URL('../fixtures/fake-cuda-worker.js', import.meta.url));
const probeProgram = fileURLToPath(new URL('../fixtures/fake-cuda-probe.js', import.meta.url));
const assumedBytes = 768 * MiB;

function driverIn(name: string): FakeDriver {
  const path = join(folder, name);
  mkdirSync(path);
  return new FakeDriver(path);
}

interface Machine {
  readonly driver: FakeDriver;
  readonly orchestrator: Orchestrator;
  /** Idempotent. */
  readonly close: () => Promise<void>;
}

/** A broker that owns one card of the fake driver, with llama workers on it. */
async function machine(t: Test, driver: FakeDriver, confirms: CardDescription['confirms'], stateFolder: string, engine: Partial<EngineCommand> = {}): Promise<Machine> {
  const { device } = gpu;
  const totalBytes = gpu.totalBytes ?? 0;
  const card: OwnedCard = {
    reserveBytes: 0,
    card: { device, name: gpu.name, kind: 'gpu', totalBytes, confirms, display: false, floorBytes: null, visibility: {} },
    reader: {
      read: async (): Promise<Reading> => {
        const processes = driver.processes();
        const usedBytes = processes.reduce((sum, each) => sum + each.usedBytes, 0);
        return { kind: 'read', device, takenAtUs: monotonicUs(), usedBytes, totalBytes, truth: 'nvml', processes: confirms === 'process' ? processes : null };
      },
      close: async () => undefined,
    },
  };
  const llama = { name: 'llama', command: process.execPath, args: [workerProgram], env: { FAKE_DRIVER: driver.folder }, modelsPerWorker: 1, floorBytes: assumedBytes, ...engine };
  const broker = await createBroker({ discover: async () => [card], engines: [llama], stateFolder, limits: { ...quick, sampleIntervalMs: 20, workerIdleMs: 200 } });
  const orchestrator = await createOrchestrator({ broker: 'attach', stateFolder, models: { tales: { source: 'tiny-tales', contextTokens: 512 } } });
  let closing: Promise<void> | null = null;
  const close = (): Promise<void> => (closing ??= orchestrator.close().then(() => broker.close()));
  t.teardown(close);
  return { driver, orchestrator, close };
}

function stateIn(t: Test): string {
  const stateFolder = mkdtempSync(join(tmpdir(), 'lh-'));
  t.teardown(() => { rmSync(stateFolder, { recursive: true, force: true }); });
  return stateFolder;
}

interface Watched {
  /** The most that was on the card at once, and the most of it that was not charged. */
  readonly peakBytes: number;
  readonly unchargedBytes: number;
  readonly foreignBytes: number;
}

function cardOf({ cards }: LedgerState): LedgerState['cards'][number] {
  const [card] = cards;
  if (card === undefined) throw new Error('there is no card');
  return card;
}

/** Holds the driver against the ledger, over and over, while `work` runs. */
async function watching({ driver, orchestrator }: Machine, work: Promise<unknown>): Promise<Watched> {
  const seen = { peakBytes: 0, unchargedBytes: -Infinity, foreignBytes: 0 };
  let running = true;
  const ended = work.finally(() => { running = false; });
  while (running) {
    const before = driver.usedBytes;
    const card = cardOf(await orchestrator.ledger());
    const after = driver.usedBytes;
    const charged = card.leasedBytes + card.floorBytes + card.residueBytes + card.returningBytes;
    seen.peakBytes = Math.max(seen.peakBytes, before, after);
    // What came or went between two looks may be in the ledger or not.
    seen.unchargedBytes = Math.max(seen.unchargedBytes, Math.min(before, after) - charged);
    seen.foreignBytes = Math.max(seen.foreignBytes, card.foreignBytes ?? 0);
  }
  await ended;
  return seen;
}

const say = async ({ orchestrator }: Machine): Promise<void> => {
  const { usage } = await orchestrator.generate('tales', { prompt: 'Once upon a time' }, { maxTokens: 4 }).result();
  if (usage.completionTokens === 0) throw new Error('it said nothing');
};
const triesOf = ({ driver }: Machine): string[] => readFileSync(join(driver.folder, 'tries'), 'utf8').trim().split('\n');

for (const confirms of ['process', 'total'] as const) {
  t.test(`every byte of a first start is charged at every moment, on a card that confirms by its ${confirms}`, async (t) => {
    const stateFolder = stateIn(t);
    const first = await machine(t, driverIn(`first-${confirms}`), confirms, stateFolder);
    const start = await watching(first, say(first));
    t.same(triesOf(first), ['cuda', 'binding'], 'a child tried the card, then the bindings their binary');
    t.equal(start.peakBytes, floorBytes, 'whatever touches the card does it alone');
    t.ok(start.unchargedBytes <= 0, `${String(start.unchargedBytes)} bytes were not charged`);
    t.equal(start.foreignBytes, 0, 'children are their worker’s');
    const settled = await until('the measured floor', async () => {
      const { floorBytes: charged } = cardOf(await first.orchestrator.ledger());
      return charged < assumedBytes && charged;
    });
    t.equal(settled, floorBytes, 'what it was taken to cost counts no longer once it is measured');

    const end = await watching(first, (async () => {
      await first.orchestrator.evict('tales');
      await until('the worker to end', async () => first.driver.usedBytes === 0 && cardOf(await first.orchestrator.ledger()).floorBytes === 0);
    })());
    t.ok(end.unchargedBytes <= 0);
    await first.close();

    const second = await machine(t, driverIn(`second-${confirms}`), confirms, stateFolder);
    const again = await watching(second, say(second));
    t.same(triesOf(second), ['binding'], 'what the child found out is kept for the next broker’s workers');
    t.ok(again.unchargedBytes <= 0);
    t.equal(again.peakBytes, floorBytes, 'nothing but the worker is there');
  });
}

t.test('a tree of processes is one process of the ledger: what a child takes, however young, is its worker’s', async (t) => {
  const driver = driverIn('tree');
  const program = join(folder, 'tree.mjs');
  const child = `const { writeFileSync } = require('node:fs'); writeFileSync(require('node:path').join(process.env.FAKE_DRIVER, String(process.pid)), '${String(64 * MiB)}'); setInterval(() => undefined, 1000);`;
  writeFileSync(program, `import { spawn } from 'node:child_process'; for (let n = 0; n < 3; n++) spawn(process.execPath, ['-e', ${JSON.stringify(child)}], { stdio: 'ignore', detached: n === 2 }); setInterval(() => undefined, 1000);`);
  const tree = await machine(t, driver, 'process', stateIn(t), { args: [program], floorBytes: 0 });
  const placing = tree.orchestrator.load('tales').catch((error: unknown) => error);
  const seen = await watching(tree, until('all of them', async () => cardOf(await tree.orchestrator.ledger()).floorBytes === 3 * 64 * MiB));
  t.equal(seen.foreignBytes, 0, 'no reading took one of them for a stranger');
  await tree.close();
  t.match(await placing, { code: /./ });
  t.equal(driver.usedBytes, 0);
});

/** An engine on the fake card in this process, and what it said. */
async function engineOn(t: Test, driver: FakeDriver, watch: Partial<EngineContext['watch']>, options: LlamaEngineOptions = {}): Promise<{ readonly engine: Engine; readonly notes: ContextNotes }> {
  const notes: ContextNotes = { lines: [], floors: [] };
  const context: EngineContext = { ...engineContext(new CountingCard(), notes, [gpu]), watch: { usedBytes: async () => driver.usedBytes, neighbours: async () => 'still', ...watch } };
  process.env['FAKE_DRIVER'] = driver.folder;
  const engine = createLlamaEngine({ library: await fakeCuda(driver), probeProgram, vetModels: false, ...options });
  await engine.start(context);
  t.teardown(async () => {
    await engine.close();
    driver.hold(0);
  });
  return { engine, notes };
}

t.test('a floor', async (t) => {
  t.test('is what the card rose by while this process came and computed, read before any of its children was there', async (t) => {
    const { engine, notes } = await engineOn(t, driverIn('alone'), {});
    t.same(engine.floors, [{ device: gpu.device, bytes: floorBytes }]);
    t.same(engine.versions['backend'], 'cuda');
    t.same(notes.floors, [], 'told with `ready`');
  });
  t.test('is unknown, which is not zero, when others moved meanwhile, when the card cannot be read, or when it is no floor', async (t) => {
    const before = { usedBytes: 1_000, neighbours: 'still' };
    t.equal(riseOf(before, { usedBytes: 1_600, neighbours: 'still' }), 600);
    t.equal(riseOf(before, { usedBytes: 1_600, neighbours: 'moved' }), null);
    t.equal(riseOf(before, null), null);
    t.equal(riseOf(null, { usedBytes: 1_600, neighbours: 'still' }), null);
    t.equal(riseOf(before, { usedBytes: 900, neighbours: 'still' }), null);
    t.equal(riseOf(before, { usedBytes: 3e9, neighbours: 'still' }), null);
  });
  t.test('that could not be measured is measured at the next start; the card is not tried again', async (t) => {
    const verdictFolder = join(folder, 'unmeasured-verdicts');
    const driver = driverIn('unmeasured');
    t.same((await engineOn(t, driver, { neighbours: async () => null }, { verdictFolder })).engine.floors, []);
    driver.hold(0);
    t.same((await engineOn(t, driver, {}, { verdictFolder })).engine.floors, [{ device: gpu.device, bytes: floorBytes }]);
    driver.hold(0);
    t.same((await engineOn(t, driver, { usedBytes: async () => { throw new Error('not asked'); } }, { verdictFolder })).engine.floors, [{ device: gpu.device, bytes: floorBytes }]);
    t.same(readFileSync(join(driver.folder, 'tries'), 'utf8').trim().split('\n'), ['cuda', 'binding', 'binding', 'binding']);
  });
  t.test('is told anew, as a whole, when a context takes more with the first prompt of a size, and only then', async (t) => {
    const driver = driverIn('computing');
    const { engine, notes } = await engineOn(t, driver, {});
    const source = await writeModel(join(folder, 'computing.gguf'), randomModel());
    const model = await engine.load(specOf(source), gpu.device, () => undefined, never);
    const context = await model.openContext('context:1', 512, never);
    const say = async (letters: number, takesBytes = 0): Promise<void> => {
      driver.nextBytes = takesBytes;
      await collect(context, promptCall('x'.repeat(letters), { maxTokens: 2 }));
    };
    const told = (bytes: number): Promise<unknown> => until('the floor', () => notes.floors.at(-1)?.[1] === bytes);
    await say(8, 4 * MiB);
    await told(floorBytes + 4 * MiB);
    driver.hold(driver.usedBytes + 100 * MiB);
    await say(8);
    await say(60, 60 * MiB);
    await told(floorBytes + 64 * MiB);
    await say(60);
    t.same(notes.floors.map(([, bytes]) => bytes), [floorBytes + 4 * MiB, floorBytes + 64 * MiB], 'what came with no larger prompt is somebody else’s');

    // Closed, a context gives it back; opened again it takes the same, and that is no more than was told.
    await context.close();
    driver.hold(floorBytes);
    const again = await model.openContext('context:1', 512, never);
    driver.nextBytes = 64 * MiB;
    await collect(again, promptCall('y'.repeat(60), { maxTokens: 2 }));
    t.equal(driver.usedBytes, floorBytes + 64 * MiB);
    await model.unload();
    t.equal(notes.floors.length, 2);
  });
  t.test('leaves out what the engine counts into leases, and what it cannot tell from its neighbours', async (t) => {
    const card = { usedBytes: 1_000, leasedBytes: 300, neighbours: 'still' as string | null };
    const told: number[] = [];
    const meter = new FloorMeter(500, {
      usedBytes: async () => card.usedBytes, leasedBytes: async () => card.leasedBytes, neighbours: async () => card.neighbours, report: (bytes) => void told.push(bytes),
    });
    const compute = async (place: string, tokens: number, takes: () => void): Promise<void> => {
      const computed = await meter.begin(place, tokens);
      takes();
      computed();
      await new Promise(setImmediate);
    };
    await compute('a', 8, () => { card.usedBytes += 150; card.leasedBytes += 100; });
    t.same(told, [550], 'a second context of 100 bytes is in its lease');
    await compute('a', 16, () => { card.usedBytes += 70; card.neighbours = 'moved'; });
    await compute('a', 32, () => { card.usedBytes -= 70; });
    await compute('b', 8, () => { card.usedBytes += 7e12; });
    card.neighbours = null;
    await compute('b', 16, () => { card.usedBytes += 20; });
    t.same(told, [550]);
    card.neighbours = 'still';
    await compute('b', 32, () => { card.usedBytes += 20; });
    t.same(told, [550, 570]);
    const late = await meter.begin('b', 64);
    card.usedBytes += 40;
    meter.forget('b');
    late();
    await new Promise(setImmediate);
    await compute('c', 8, () => { card.usedBytes += 20; });
    t.same(told, [550, 570], 'of a context that was closed nothing is left');

    const broken = new FloorMeter(500, { usedBytes: () => Promise.reject(new Error('disposed')), leasedBytes: async () => 0, neighbours: async () => 'still', report: () => t.fail('told') });
    (await broken.begin('a', 8))();
    await new Promise(setImmediate);
  });
});

t.test('B22: a card on which llama.cpp does not compute', async (t) => {
  const driver = driverIn('refused');
  const failing = join(folder, 'fails.mjs');
  writeFileSync(failing, `process.send({ kind: 'failed', reason: 'PTX was compiled with an unsupported toolchain' });`);
  t.test('is an error that names it, every reason and what to do, never the CPU in silence', async (t) => {
    await t.rejects(engineOn(t, driver, {}, { probeProgram: failing }), {
      code: 'card_unusable', help: /cpuFallback: allow/,
      message: 'llama does not compute on NVIDIA Test (GPU-11111111-2222): cuda: PTX was compiled with an unsupported toolchain; vulkan: PTX was compiled with an unsupported toolchain.',
    });
    await t.rejects(engineOn(t, driver, {}, { probeProgram: failing, cpuFallback: 'refuse' }), { code: 'card_unusable' });
  });
  t.test('that hangs is told of before the start is out of time', async (t) => {
    const hanging = join(folder, 'hangs.mjs');
    writeFileSync(hanging, 'setInterval(() => undefined, 1000);');
    const context: EngineContext = { ...engineContext(new CountingCard(), undefined, [gpu]), startTimeoutMs: 1_000 };
    const startedMs = performance.now();
    await t.rejects(createLlamaEngine({ library: await fakeCuda(driver), probeProgram: hanging }).start(context), { code: 'card_unusable', message: /cuda: it did not answer within 7\d\d.* ms; vulkan: no time was left to try it/ });
    t.ok(performance.now() - startedMs >= 700);
  });
  t.test('is left for the CPU where that is allowed: it says so, leases nothing and costs nothing there', async (t) => {
    const { engine, notes } = await engineOn(t, driver, {}, { probeProgram: failing, cpuFallback: 'allow' });
    t.equal(engine.versions['backend'], 'cpu');
    t.same(engine.floors, [{ device: gpu.device, bytes: 0 }]);
    t.match(notes.lines.join('\n'), /warn: llama.cpp does not compute with cuda here: PTX[^]*warn: no backend .* running on the CPU, as allowed/);
    const source = await writeModel(join(folder, 'small.gguf'), randomModel());
    const estimate = await engine.estimate(specOf(source), never);
    t.same([estimate.parts[0]?.bytes, estimate.contextBytes(512)], [0, 0]);
    const model = await engine.load(specOf(source), gpu.device, () => undefined, never);
    const context = await model.openContext('context:1', 256, never);
    t.equal((await collect(context, promptCall('on the CPU', { maxTokens: 3 }))).ids.length, 3);
    t.equal(model.residentBytes(), 0);
    await model.unload();
  });
  t.test('is one of many that Vulkan shows at once, or another than was given', async (t) => {
    t.equal(visibilityFault(['NVIDIA H200'], 'NVIDIA H200'), null);
    t.equal(visibilityFault(['AMD Radeon RX 7900 XTX (RADV NAVI31)'], 'AMD Radeon RX 7900 XTX'), null);
    t.equal(visibilityFault(['llvmpipe'], 'a card'), null, 'an unknown maker is not held against it');
    t.match(visibilityFault(['NVIDIA A', 'NVIDIA B'], 'NVIDIA B'), /sees 2 cards \(NVIDIA A, NVIDIA B\) and cannot be kept to one/);
    t.match(visibilityFault(['AMD Radeon'], 'NVIDIA H200'), /another card, AMD Radeon/);
    t.match(visibilityFault([], 'NVIDIA H200'), /no card/);
  });
});

t.test('B22: who waits for a worker whose card does not compute is told so, by code', async (t) => {
  const driver = driverIn('told');
  const failing = join(folder, 'fails.mjs');
  const told = await machine(t, driver, 'process', stateIn(t), { env: { FAKE_DRIVER: driver.folder, FAKE_PROBE: failing } });
  await t.rejects(say(told), { code: 'card_unusable', details: { device: gpu.device, card: gpu.name }, message: /unsupported toolchain/ });
  t.equal(driver.usedBytes, 0);
  await until('its charge to be gone', async () => cardOf(await told.orchestrator.ledger()).floorBytes === 0);
});
