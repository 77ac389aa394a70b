/**
 * The first rung with a real helper process: over a fake libnvidia-ml made from C where there is a compiler, and over
 * fake helpers in any case.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { createNvmlRung, type NvmlRungOptions, type Reading, type Rung } from '../../../broker/devices/index.js';
import { decodeBytes, decodeProcesses, mergeProcesses, processStrideBytes } from '../../../broker/devices/nvml-abi.js';
import { nvmlLibraryPaths } from '../../../broker/devices/platform.js';
import { LinuxProcessTable } from '../../../broker/supervisor/process-table-linux.js';
import { patienceMs, until } from '../supervisor/harness.js';

const first = 'GPU-11111111-2222-3333-4444-555555555555';
const second = 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';
const mebibyte = 1_024 ** 2;
const linux = { name: 'linux', wsl: false, firstPidNamespace: true } as const;
const source = fileURLToPath(new URL('../../../../test/broker/devices/fake-nvml.c', import.meta.url));
const fakeHelper = fileURLToPath(new URL('../../../../test/fixtures/processes/fake-helper.mjs', import.meta.url));
const table = new LinuxProcessTable();

/** Living helper processes of this test. */
const helpers = (): readonly number[] => (table.list() ?? []).filter(({ parentPid, ended }) => parentPid === process.pid && !ended).map(({ pid }) => pid);

function readOf(reading: Reading): Extract<Reading, { kind: 'read' }> {
  if (reading.kind !== 'read') throw new Error(`missing: ${reading.reason}`);
  return reading;
}

/** Reads until there is a reading: a new helper needs its time, and rests before it. */
async function readAgain(rung: Rung, device: string): Promise<Reading> {
  for (const endMs = performance.now() + patienceMs; performance.now() < endMs;) {
    const reading = await rung.read(device);
    if (reading.kind === 'read') return reading;
    await pause(5);
  }
  throw new Error('no reading in time');
}

t.test('the layout of what NVML fills in', async (t) => {
  const value = (bytes: bigint): Buffer => {
    const buffer = Buffer.alloc(8);
    buffer.writeBigUInt64LE(bytes);
    return buffer;
  };
  t.equal(decodeBytes(value(0n), 0), 0, 'zero is zero');
  t.equal(decodeBytes(value(0xffff_ffff_ffff_ffffn), 0), null, 'not available is not zero');
  t.equal(decodeBytes(value(2n ** 60n), 0), null, 'nor is what no number holds');
  t.equal(processStrideBytes('580.159.03'), 24);
  t.equal(processStrideBytes('535.54.03'), 32, 'one branch had a longer layout');
  t.equal(processStrideBytes('535.129.03'), 24, 'and took it back');
  const wide = Buffer.alloc(64);
  wide.writeUInt32LE(9, 32);
  wide.writeBigUInt64LE(77n, 40);
  t.strictSame(decodeProcesses(wide, 2, 32)[1], { pid: 9, usedBytes: 77 });
  t.strictSame(mergeProcesses([[{ pid: 1, usedBytes: 5 }], [{ pid: 1, usedBytes: 7 }, { pid: 2, usedBytes: 1 }]]), [{ pid: 1, usedBytes: 7 }, { pid: 2, usedBytes: 1 }]);
  t.equal(mergeProcesses([[{ pid: 1, usedBytes: 5 }, { pid: 2, usedBytes: null }]]), null, 'a list with a hole is no list');
  t.match(nvmlLibraryPaths(linux)[0], 'libnvidia-ml.so.1');
  t.match(nvmlLibraryPaths({ ...linux, wsl: true })[0], '/usr/lib/wsl/');
  t.match(nvmlLibraryPaths({ name: 'win32', wsl: false, firstPidNamespace: true }, { SystemRoot: 'C:\\W' })[0], /nvml\.dll$/);
  t.strictSame(nvmlLibraryPaths({ name: 'darwin', wsl: false, firstPidNamespace: true }), []);
});

t.test('fake helpers', async (t) => {
  const rungWith = (manner: string, options: NvmlRungOptions = {}): Rung => {
    const memory = join(t.testdirName, `${manner.replace(':', '-')}-memory`);
    const helper = { command: process.execPath, args: [fakeHelper, manner, memory], env: { PATH: process.env['PATH'] ?? '' } };
    return createNvmlRung({ platform: linux, probeTimeoutMs: 10_000, discoverTimeoutMs: 10_000, backoffFirstMs: 1, helper, ...options });
  };
  t.testdir();

  t.test('B52: reading is the helper\'s; the broker\'s own process has no driver loaded', async (t) => {
    const rung = rungWith('ok');
    t.match(await rung.discover(), { driver: 'fake', cards: [{ device: first, confirms: 'process', kind: 'gpu', display: false }] });
    t.match(await rung.read(first), { kind: 'read', usedBytes: 10, truth: 'nvml', counting: 'v2', processes: [{ pid: 7, usedBytes: 10 }] });
    t.equal(helpers().length, 1, 'one helper, however many questions');
    t.notMatch(readFileSync('/proc/self/maps', 'utf8'), /libnvidia-ml|libcuda|koffi/);
    await rung.close();
    t.strictSame(helpers(), []);
    t.match(await rung.read(first), { kind: 'missing', reading: 'failed', reason: 'closed' });
    t.match(await rung.discover(), { unavailable: 'closed' });
  });

  t.test('a helper that hangs is killed at the deadline, every open question is answered, and the next helper serves', async (t) => {
    const rung = rungWith('once:hang', { probeTimeoutMs: 400 });
    const startedMs = performance.now();
    const readings = await Promise.all([rung.read(first), rung.read(second)]);
    t.ok(performance.now() - startedMs < 5_000);
    for (const reading of readings) t.match(reading, { kind: 'missing', reading: 'timed_out' });
    t.match(await readAgain(rung, first), { usedBytes: 10 });
    await rung.close();
    t.strictSame(helpers(), []);
  });

  t.test('garbage, an endless line, a death and a silent start are failures with reasons, and none disturbs us', async (t) => {
    const rows = [['garbage', /something else than an answer/], ['endless', /without end/], ['dies', /exit code 5/]] as const;
    for (const [manner, reason] of rows) {
      const rung = rungWith(manner);
      t.match(await rung.read(first), { kind: 'missing', reading: 'failed', reason }, manner);
      await rung.close();
    }
    const mute = rungWith('mute', { discoverTimeoutMs: 200 });
    t.match(await mute.discover(), { unavailable: /no word from the NVML helper within 200 ms/ });
    await mute.close();
    const missing = rungWith('ok', { helper: { command: '/no/such/node', args: [], env: {} } });
    t.match(await missing.discover(), { unavailable: /could not be started/ });
    await missing.close();
    t.strictSame(helpers(), []);
  });

  t.test('a machine without NVML says why, and a failed helper rests before the next', async (t) => {
    let nowUs = 1_000_000;
    const rung = rungWith('unavailable', { backoffFirstMs: 1_000, nowUs: () => nowUs });
    t.match(await rung.discover(), { unavailable: 'no library in this test' });
    t.match(await rung.read(first), { kind: 'missing', reading: 'failed', reason: 'no library in this test' });
    t.strictSame(helpers(), [], 'it rests: nothing was started');
    nowUs += 1_001_000;
    t.match(await rung.discover(), { unavailable: 'no library in this test' }, 'asked anew');
    await rung.close();
  });

  t.test('where pids are others\' pids, and under WDDM, no figure by process is believed', async (t) => {
    for (const platform of [{ ...linux, firstPidNamespace: false }, { ...linux, wsl: true }]) {
      const rung = rungWith('ok', { platform });
      t.match(await rung.discover(), { cards: [{ confirms: 'total', display: platform.wsl }] });
      t.equal(readOf(await rung.read(first)).processes, null);
      await rung.close();
    }
  });
});

const folder = t.testdir();
const library = join(folder, 'libnvidia-ml.so.1');
const compiler = spawnSync('gcc', ['-shared', '-fPIC', '-O1', '-o', library, source], { encoding: 'utf8' });

if (compiler.error !== undefined) {
  t.comment('no gcc here: the library itself is not tried, and the fake helpers above stand for it');
} else {
  t.test('a fake libnvidia-ml', async (t) => {
    t.equal(compiler.status, 0, compiler.stderr);
    const words = join(folder, 'words');
    const behave = (...told: readonly string[]): void => writeFileSync(words, `${told.join('\n')}\n`);
    const rungWith = (options: NvmlRungOptions = {}): Rung => createNvmlRung({
      platform: linux, libraryPaths: ['/no/such/library.so', library], probeTimeoutMs: 10_000, backoffFirstMs: 1, environment: { FAKE_NVML: words }, ...options,
    });
    behave();
    const rung = rungWith();
    t.teardown(() => rung.close());

    t.test('cards are named by UUID in one spelling, with their totals, names and displays', async (t) => {
      const found = await rung.discover();
      t.match(found, {
        driver: '580.159.03',
        cards: [
          { device: first, name: 'Fake H200', totalBytes: 143_771 * mebibyte, display: false, confirms: 'process', kind: 'gpu', floorBytes: null, visibility: { CUDA_VISIBLE_DEVICES: first, CUDA_DEVICE_ORDER: 'PCI_BUS_ID' } },
          { device: second, name: 'Fake desk card', totalBytes: 16_384 * mebibyte, display: true },
        ],
      });
    });

    t.test('a reading has the time it was taken, v2 figures and each process once', async (t) => {
      const beforeUs = Number(process.hrtime.bigint() / 1_000n);
      const reading = readOf(await rung.read(second));
      t.ok(reading.takenAtUs >= beforeUs && reading.takenAtUs <= Number(process.hrtime.bigint() / 1_000n), 'one clock in both processes');
      t.strictSame({ ...reading, takenAtUs: 0 }, {
        kind: 'read', device: second, takenAtUs: 0, usedBytes: 700 * mebibyte, totalBytes: 16_384 * mebibyte, truth: 'nvml', counting: 'v2',
        processes: [{ pid: 4001, usedBytes: 500 * mebibyte }, { pid: 4002, usedBytes: 200 * mebibyte }, { pid: 4003, usedBytes: 0 }, { pid: 4009, usedBytes: 30 * mebibyte }],
      });
      behave('many');
      t.equal(readOf(await rung.read(first)).processes?.length, 300, 'more processes than there was room for');
      behave('v1-only');
      t.match(await rung.read(first), { counting: 'v1', usedBytes: 1_615 * mebibyte }, 'v1 is labelled: it counts what the driver reserves');
    });

    t.test('B29: N/A, error, a lost card, nonsense and zero are different readings', async (t) => {
      behave('n-a');
      t.match(await rung.read(first), { kind: 'missing', reading: 'unsupported' });
      behave('error');
      const failed = await rung.read(first);
      t.match(failed, { kind: 'missing', reading: 'failed', reason: /unknown error \(999\)/ });
      t.notOk('lost' in failed, 'a driver that fails says nothing of its cards (B107)');
      behave('wrong-total');
      t.match(await rung.read(first), { kind: 'missing', reading: 'unknown', reason: /cannot be/ });
      behave('lost');
      t.match(await rung.read(second), { kind: 'missing', reading: 'failed', reason: /GPU is lost/, lost: true });
      t.match(await rung.read(first), { kind: 'read' }, 'the other card is not disturbed');
      behave('vanish');
      t.match(await rung.read(second), { kind: 'missing', reading: 'failed', reason: /not found|GPU is lost/, lost: true });
      t.match(await rung.discover(), { cards: [{ device: first }] });
      behave();
      t.match(await rung.read(second), { kind: 'read' }, 'a card that comes back is read again');
      t.match(await rung.read('GPU-00000000-0000-0000-0000-000000000000'), { kind: 'missing', reading: 'failed', reason: /not found/ });
      t.equal(helpers().length, 1, 'all this in one helper');
    });

    t.test('what is not said by process is null, and then the total confirms', async (t) => {
      behave('no-processes');
      t.match(await rung.discover(), { cards: [{ confirms: 'total' }, { confirms: 'total' }] });
      t.equal(readOf(await rung.read(first)).processes, null);
      behave('wddm');
      t.equal(readOf(await rung.read(first)).processes, null, 'one "not available" spoils the list');
    });

    t.test('a card in MIG mode is shown by its slices', async (t) => {
      behave('mig');
      const slice = 'MIG-99999999-8888-7777-6666-555555555555';
      t.match(await rung.discover(), { cards: [{ device: slice, visibility: { CUDA_VISIBLE_DEVICES: slice } }, { device: second }] });
      t.match(await rung.read(slice), { usedBytes: 64 * mebibyte, totalBytes: 20_096 * mebibyte });
      t.match(await rung.read(first), { kind: 'missing', reading: 'unsupported', reason: /MIG mode/, lost: true }, 'the card as a whole is gone then, for who had it before');
      behave('mig', 'n-a');
      t.match(await rung.discover(), { cards: [], unmeasured: [{ device: slice }, { device: second }] }, 'cards without a figure are named all the same');
      behave();
    });

    t.test('a call that hangs costs its helper, not us; a crash inside the library likewise', async (t) => {
      const others = helpers();
      const hasty = rungWith({ probeTimeoutMs: 500 });
      t.match(await hasty.discover(), { driver: '580.159.03' });
      const [pid = 0] = helpers().filter((each) => !others.includes(each));
      behave('hang');
      t.match(await hasty.read(first), { kind: 'missing', reading: 'timed_out', reason: /its helper was killed/ });
      await until('the helper to be gone', () => !helpers().includes(pid));
      behave();
      t.match(await readAgain(hasty, first), { usedBytes: 1_000 * mebibyte }, 'the next helper serves');
      behave('crash');
      t.match(await rung.read(first), { kind: 'missing', reading: 'failed', reason: /SIGABRT/ });
      behave('hang-init');
      const stuck = rungWith({ discoverTimeoutMs: 300 });
      t.match(await stuck.discover(), { unavailable: /no word/ });
      behave('no-driver');
      const driverless = rungWith();
      t.match(await driverless.discover(), { unavailable: /driver not loaded \(9\)/ });
      behave();
      await Promise.all([hasty.close(), stuck.close(), driverless.close()]);
    });

    t.test('a helper does not outlive its broker, even inside a hanging call', async (t) => {
      behave();
      const index = new URL('../../../broker/devices/index.js', import.meta.url).href;
      const script = `
        const { createNvmlRung } = await import(${JSON.stringify(index)});
        const { writeFileSync } = await import('node:fs');
        const rung = createNvmlRung({ platform: ${JSON.stringify(linux)}, libraryPaths: [${JSON.stringify(library)}], environment: { FAKE_NVML: ${JSON.stringify(words)}, MARK: 'outlive-test' } });
        await rung.discover();
        writeFileSync(${JSON.stringify(words)}, 'hang\\n');
        void rung.read('${first}');
        setTimeout(() => process.kill(process.pid, 'SIGKILL'), 100);`;
      const run = spawnSync(process.execPath, ['--input-type=module', '-e', script]);
      t.equal(run.signal, 'SIGKILL');
      const marked = (): readonly string[] => readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && environOf(pid).includes('MARK=outlive-test'));
      await until('its helper to be gone', () => marked().length === 0);
      t.strictSame(marked(), []);
      behave();
    });
  });
}

function environOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1');
  } catch (error) {
    if (error instanceof Error && 'code' in error) return '';
    throw error;
  }
}
