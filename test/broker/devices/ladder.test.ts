/** The lower rungs, the ladder over all of them, simulated cards, and the defaults. */
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { parseBytes } from '../../../protocol/byte-size.js';
import {
  DeviceLadder, SimulatedCard, cpuCard, createAmdgpuRung, createNvidiaSmiRung, createRealRungs, defaultReserveBytes, deviceNotes,
  isSimulatedSpec, normaliseDevice, parseSimulatedSpec, simulatedDevice, type CardDescription, type DeviceLog, type Discovery, type Reading, type Rung,
} from '../../../broker/devices/index.js';
import { Unreadable } from '../../../broker/devices/host/files.js';
import { parseFdinfo } from '../../../broker/devices/amdgpu-processes.js';
import { parseSmiFigure, parseSmiRows } from '../../../broker/devices/nvidia-smi-csv.js';
import { LinuxProcessTable } from '../../../broker/supervisor/process-table-linux.js';
import { until } from '../supervisor/harness.js';

const first = 'GPU-11111111-2222-3333-4444-555555555555';
const second = 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';
const mebibyte = 1_024 ** 2;
const gibibyte = 1_024 ** 3;
const linux = { name: 'linux', wsl: false, firstPidNamespace: true } as const;

t.test('sizes are whole numbers with a unit or none', async (t) => {
  const rows = [['0', 0], ['1048576', 1_048_576], ['24MiB', 24 * mebibyte], ['1KiB', 1_024], ['2GiB', 2 * gibibyte], ['3KB', 3_000], ['3MB', 3_000_000], ['3GB', 3_000_000_000], ['1TB', 1e12], ['1TiB', 1_024 ** 4]] as const;
  for (const [text, bytes] of rows) t.equal(parseBytes(text, 'size'), bytes, text);
  for (const text of ['', ' 1', '1 MiB', '1.5GiB', '-1', '+1', '1e3', '0x10', '1mib', '1M', '1PB', 'MiB', 'NaN', '9007199254740992', '9999999999999GiB']) {
    t.throws(() => parseBytes(text, 'size'), { code: 'bytes_invalid', details: { field: 'size' } }, JSON.stringify(text));
  }
  t.throws(() => parseBytes('0', 'size', 1), { code: 'bytes_invalid', details: { minimum: '1' } });
});

t.test('R28: every spelling of a card is one name, and an index is none', async (t) => {
  const rows = [
    ['GPU-AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE', second], ['aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee', second], [' gpu-aaaaaaaabbbbccccddddeeeeeeeeeeee\n', second],
    ['mig-AAAAAAAA-bbbb-cccc-dddd-eeeeeeeeeeee', 'MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'],
    ['MIG-GPU-AAAAAAAA-bbbb-cccc-dddd-eeeeeeeeeeee/1/0', 'MIG-GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/1/0'],
    ['0x7F1A2B3C4D5E6F70', 'GPU-7f1a2b3c4d5e6f70'], ['SIM-Ab3-0', 'SIM-Ab3-0'], ['CPU-0', 'CPU-0'],
  ] as const;
  for (const [spelling, name] of rows) t.equal(normaliseDevice(spelling), name, spelling);
  for (const spelling of ['0', '1', '', 'cuda:0', 'all', 'MIG-1/2/3', 'GPU-']) t.equal(normaliseDevice(spelling), null, JSON.stringify(spelling));
});

t.test('R11, R20: the default reserve by kind of card', async (t) => {
  const card = (kind: CardDescription['kind'], display: boolean, totalBytes: number): CardDescription => ({ ...cpuCard(), kind, display, totalBytes });
  t.equal(defaultReserveBytes(card('gpu', true, 24 * gibibyte), 'linux'), 1_278_423_859);
  t.equal(defaultReserveBytes(card('gpu', true, 16 * gibibyte), 'win32'), 1_592_996_659);
  t.equal(defaultReserveBytes(card('gpu', true, 8 * gibibyte), 'win32'), 1_592_996_659 - 100 * mebibyte);
  t.equal(defaultReserveBytes(card('gpu', false, 140 * gibibyte), 'linux'), 256 * mebibyte);
  t.equal(defaultReserveBytes(card('simulated', false, 24 * mebibyte), 'linux'), 0);
  t.equal(defaultReserveBytes(card('cpu', false, 0), 'linux'), 0);
  t.equal(createRealRungs({ platform: { name: 'darwin', wsl: false, firstPidNamespace: true } }).length, 0);
  t.ok(deviceNotes({ name: 'darwin', wsl: false, firstPidNamespace: true }).every(({ code }) => code === 'platform_unsupported'));
  t.strictSame(deviceNotes(linux), []);
  t.strictSame(createRealRungs({ platform: linux }).map(({ truth }) => truth), ['nvml', 'nvidia-smi', 'amdgpu']);
});

t.test('nvidia-smi', async (t) => {
  const folder = t.testdir();
  const script = (name: string, body: string): string => {
    const path = join(folder, name);
    writeFileSync(path, `#!/bin/sh\n${body}\n`);
    chmodSync(path, 0o755);
    return path;
  };
  const rungOf = (name: string, body: string, probeTimeoutMs = 10_000): Rung => createNvidiaSmiRung({ command: script(name, body), platform: linux, probeTimeoutMs });
  const table = `echo "${first}, 143771, 1000, Disabled, Disabled, 580.159.03, NVIDIA H200"\necho "${second.toUpperCase()}, 16384, 0, Enabled, [N/A], 580.159.03, Card, of two names"`;

  t.test('cards and readings by UUID, MiB as bytes; used 0 is 0', async (t) => {
    const rung = rungOf('good', table);
    t.match(await rung.discover(), {
      driver: '580.159.03',
      cards: [
        { device: first, name: 'NVIDIA H200', totalBytes: 143_771 * mebibyte, confirms: 'total', display: false },
        { device: second, name: 'Card, of two names', display: true },
      ],
    });
    const reading = await rung.read(first);
    t.match(reading, { kind: 'read', usedBytes: 1_000 * mebibyte, totalBytes: 143_771 * mebibyte, truth: 'nvidia-smi', processes: null });
    t.match(await rung.read(second), { kind: 'read', usedBytes: 0 });
    await rung.close();
    t.match(await rung.read(first), { kind: 'missing', reading: 'failed', reason: /closed/ });
  });

  t.test('B29: exit code, silence, N/A, nonsense, a full card and a hang are six readings', async (t) => {
    const rows = [
      ['exit-9', 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9', { kind: 'missing', reading: 'failed', reason: /exit code 9.*could not communicate/ }],
      ['empty', 'exit 0', { kind: 'missing', reading: 'unknown', reason: /printed no card/ }],
      ['n-a', `echo "${first}, 143771, [N/A], x"`, { kind: 'missing', reading: 'unsupported' }],
      ['denied', `echo "${first}, 143771, [Insufficient Permissions], x"`, { kind: 'missing', reading: 'failed' }],
      ['nonsense', `echo "${first}, 143771, -5, x"`, { kind: 'missing', reading: 'unknown' }],
      ['more-than-all', `echo "${first}, 100, 101, x"`, { kind: 'missing', reading: 'unknown', reason: /cannot be/ }],
      ['full', `echo "${first}, 143771, 143771, x"`, { kind: 'read', usedBytes: 143_771 * mebibyte }],
      ['flood', 'yes no-card', { kind: 'missing', reading: 'failed', reason: /wrote more than/ }],
    ] as const;
    for (const [name, body, wanted] of rows) t.match(await rungOf(name, body).read(first), wanted, name);
    t.match(await createNvidiaSmiRung({ command: join(folder, 'not-there'), platform: linux }).read(first), { kind: 'missing', reading: 'failed', reason: /could not be started/ });
    t.match(await createNvidiaSmiRung({ platform: { name: 'darwin', wsl: false, firstPidNamespace: true } }).discover(), { unavailable: /no nvidia-smi/ });

    const pidFile = join(folder, 'pid-of-hang');
    const hanging = rungOf('hang', `sleep 300 & echo "$$ $!" > ${pidFile}; wait`, 300);
    t.match(await hanging.read(first), { kind: 'missing', reading: 'timed_out', reason: /within 300 ms/ });
    const listing = new LinuxProcessTable();
    const pids = (await until('the script to have begun', () => readFileSync(pidFile, 'utf8').trim())).split(' ').map(Number);
    await until('the script and what it started to be gone', () => pids.every((pid) => listing.find(pid) === null));
    t.equal(pids.length, 2);
  });

  t.test('B103: a card that cannot be measured does not hide the others, nor does a run that fails half way', async (t) => {
    const rung = rungOf('half', 'printf "GPU-a, 24576, [N/A], Disabled, [N/A], 1, A\\nGPU-b, [N/A], [N/A], Disabled, [N/A], 1, B\\nGPU-c, 81920, 5, Disabled, Enabled, 1, C\\nGPU-d, 81920, 5, Disabled, Disabled, 1, D\\nGPU-f, 81920, [Insufficient Permissions], Disabled, Disabled, 1, F\\nUnable to determine the device handle\\n"; exit 15');
    t.match(await rung.discover(), {
      cards: [{ device: 'GPU-a' }, { device: 'GPU-d' }, { device: 'GPU-f', totalBytes: 81_920 * mebibyte }],
      unmeasured: [{ device: 'GPU-b', reason: /N\/A/ }, { device: 'GPU-c', reason: /MIG mode/ }],
    });
    t.match(await rung.read('GPU-a'), { kind: 'missing', reading: 'unsupported' });
    t.match(await rung.read('GPU-f'), { kind: 'missing', reason: /Insufficient Permissions/ }, 'unknown, and no number');
    t.match(await rung.read('GPU-d'), { kind: 'read', usedBytes: 5 * mebibyte });
    t.match(await rung.read('GPU-e'), { kind: 'missing', reading: 'failed', reason: /exit code 15/ });
    t.strictSame([...parseSmiRows('warning, not, a, row\n\n').keys()], []);
    t.match(parseSmiFigure('12 MiB'), { kind: 'missing', reading: 'unknown' });
  });

  t.test('B106, B107: a card that the tool no longer lists beside others is lost, and one that it cannot tell of is not', async (t) => {
    const other = `echo "${first}, 143771, 1000, Disabled, Disabled, 580, A"`;
    const rows = [
      ['gone', other, { reading: 'unknown', lost: true }],
      ['says-so', `${other}; echo "${second}, [GPU is lost], [GPU is lost], x"`, { reading: 'failed', reason: /GPU is lost/, lost: true }],
      ['sliced', `${other}; echo "${second}, 81920, 5, Disabled, Enabled, 580, B"`, { reading: 'unsupported', reason: /MIG mode/, lost: true }],
      ['half-way', `${other}; exit 15`, { reading: 'failed', lost: undefined }],
      ['mismatch', 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18', { reading: 'failed', reason: /version mismatch/, lost: undefined }],
      ['empty-list', 'exit 0', { reading: 'unknown', lost: undefined }],
    ] as const;
    for (const [name, body, wanted] of rows) t.match(await rungOf(name, body).read(second), { kind: 'missing', ...wanted }, name);
  });

  t.test('one run at a time serves all who ask meanwhile', async (t) => {
    const counter = join(folder, 'runs');
    const rung = rungOf('counted', `echo run >> ${counter}\n${table}`);
    const readings = await Promise.all(Array.from({ length: 20 }, (_, index) => rung.read(index % 2 === 0 ? first : second)));
    t.ok(readings.every(({ kind }) => kind === 'read'));
    t.equal(readFileSync(counter, 'utf8').trim().split('\n').length, 1);
    await rung.read(first);
    t.equal(readFileSync(counter, 'utf8').trim().split('\n').length, 2);
  });
});

t.test('amdgpu', async (t) => {
  const tree = (files: Readonly<Record<string, string>>): string => {
    const root = t.testdir();
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    return root;
  };
  const card = (index: number, more: Readonly<Record<string, string>>): Record<string, string> => Object.fromEntries(
    Object.entries({ vendor: '0x1002\n', uevent: `DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0${index}:00.0\n`, mem_info_vram_total: '17163091968\n', mem_info_vram_used: '1234567168\n', ...more })
      .map(([name, text]) => [`sys/class/drm/card${index}/device/${name}`, text]),
  );

  t.test('cards by their unique id, shown to ROCm alone; memory and processes by what the kernel shows', async (t) => {
    const root = tree({
      ...card(0, { vendor: '0x10de\n', unique_id: 'deadbeef\n' }),
      ...card(1, { unique_id: '7f1a2b3c4d5e6f70\n', product_name: 'Radeon Pro W7900\n' }),
      ...card(2, { unique_id: '00112233aabbccdd\n' }),
      ...card(3, {}),
      'sys/class/drm/card1-DP-1/status': 'connected\n',
      'sys/class/drm/card2-DP-2/status': 'disconnected\n',
      'sys/module/amdgpu/version': '6.8.5\n',
      'proc/77/fdinfo/3': 'drm-driver:\tamdgpu\ndrm-pdev:\t0000:01:00.0\ndrm-client-id:\t5\ndrm-memory-vram:\t2048 KiB\n',
      'proc/77/fdinfo/4': 'drm-driver:\tamdgpu\ndrm-pdev:\t0000:01:00.0\ndrm-client-id:\t5\ndrm-memory-vram:\t2048 KiB\n',
      'proc/77/fdinfo/5': 'drm-driver:\tamdgpu\ndrm-pdev:\t0000:02:00.0\ndrm-client-id:\t6\ndrm-memory-vram:\t9 KiB\namd-evicted-vram:\t3 KiB\n',
      'proc/77/fd/.keep': '',
      'proc/self/stat': '',
    });
    for (const descriptor of ['3', '4', '5']) symlinkSync('/dev/dri/renderD128', join(root, 'proc/77/fd', descriptor));
    const rung = createAmdgpuRung({ sysRoot: join(root, 'sys'), procRoot: join(root, 'proc') });
    const found = await rung.discover();
    t.match(found, {
      driver: '6.8.5',
      cards: [
        { device: 'GPU-7f1a2b3c4d5e6f70', name: 'Radeon Pro W7900', totalBytes: 17_163_091_968, display: true, confirms: 'total', visibility: { ROCR_VISIBLE_DEVICES: 'GPU-7f1a2b3c4d5e6f70', HIP_VISIBLE_DEVICES: '0', CUDA_VISIBLE_DEVICES: '-1' } },
        { device: 'GPU-00112233aabbccdd', display: false },
      ],
    });
    t.equal('cards' in found ? found.cards.length : 0, 2, 'neither another maker\'s card, nor one that could only be guessed');
    t.match(await rung.read('GPU-7f1a2b3c4d5e6f70'), { kind: 'read', usedBytes: 1_234_567_168, truth: 'amdgpu', processes: [{ pid: 77, usedBytes: 2_097_152 }] });
    t.notOk('spilled' in (await rung.read('GPU-7f1a2b3c4d5e6f70')), 'what the kernel does not say is not 0');
    t.match(await rung.read('GPU-00112233aabbccdd'), { processes: [{ pid: 77, usedBytes: 9_216 }], spilled: [{ pid: 77, spilledBytes: 3_072 }] }, 'B113: what had to leave the card');
    writeFileSync(join(root, 'sys/class/drm/card2/device/mem_info_vram_used'), 'N/A\n');
    t.match(await rung.read('GPU-00112233aabbccdd'), { kind: 'missing', reading: 'unknown' });
    t.match(await rung.read('GPU-ffffffffffffffff'), { kind: 'missing', reading: 'unknown' });
    await rung.close();
  });

  t.test('a single card without an id goes by its address; one without a figure is named; none is said', async (t) => {
    const apu = tree(card(0, { unique_id: '0\n' }));
    const rung = createAmdgpuRung({ sysRoot: join(apu, 'sys'), procRoot: join(apu, 'nothing') });
    t.match(await rung.discover(), { cards: [{ device: 'GPU-amd-0000-00-00-0', visibility: { ROCR_VISIBLE_DEVICES: '0' } }] });
    t.match(await rung.read('GPU-amd-0000-00-00-0'), { kind: 'read', processes: null });
    const { 'sys/class/drm/card0/device/mem_info_vram_total': _gone, ...bare } = card(0, { unique_id: '7f1a2b3c4d5e6f70' });
    t.match(await createAmdgpuRung({ sysRoot: join(tree(bare), 'sys') }).discover(), { cards: [], unmeasured: [{ device: 'GPU-7f1a2b3c4d5e6f70', reason: /no such figure/ }] });
    t.match(await createAmdgpuRung({ sysRoot: join(apu, 'empty') }).discover(), { unavailable: /no amdgpu card/ });
    t.equal(parseFdinfo('drm-driver: i915\n', 'x'), null);
    t.match(parseFdinfo('drm-driver: amdgpu\ndrm-pdev: x\ndrm-client-id: 1\ndrm-resident-vram: 3 MiB\n', 'x'), { id: '1', bytes: 3 * mebibyte });
  });
});

t.test('simulated cards', async (t) => {
  let nowUs = 1_000_000;
  const cardOf = (spec: string, index = 0): SimulatedCard => new SimulatedCard({ ...parseSimulatedSpec(spec), device: simulatedDevice('ab12', index), nowUs: () => nowUs });

  t.test('a word describes one', async (t) => {
    t.strictSame(parseSimulatedSpec('sim:24MiB,floor=1MiB,lag=200ms,blind,name=Small card'), { totalBytes: 24 * mebibyte, floorBytes: mebibyte, lagMs: 200, blind: true, name: 'Small card' });
    t.strictSame(parseSimulatedSpec('sim:1000, lag=2s'), { totalBytes: 1_000, floorBytes: 0, lagMs: 2_000, blind: false, name: null });
    t.ok(isSimulatedSpec('sim:1'));
    t.notOk(isSimulatedSpec(first));
    for (const text of ['sim:', 'sim:0', 'sim:1.5MiB', 'sim:24MiB,floor=', 'sim:24MiB,floor=x']) t.throws(() => parseSimulatedSpec(text), { code: 'bytes_invalid' }, text);
    for (const text of ['24MiB', 'sim:1MiB,lag=5', 'sim:1MiB,blind,blind', 'sim:1MiB,blind=1', 'sim:1MiB,floor', 'sim:1MiB,what=1', 'sim:1MiB,floor=2MiB', 'sim:1MiB,name=', 'sim:1MiB,']) {
      t.throws(() => parseSimulatedSpec(text), { code: 'input_invalid', details: { field: 'devices' } }, text);
    }
  });

  t.test('it reads what was allocated, refuses what does not fit, and counts', async (t) => {
    const card = cardOf('sim:100,floor=10,name=Small');
    t.match(await card.discover(), { driver: 'simulated', cards: [{ device: 'SIM-ab12-0', name: 'Small', kind: 'simulated', totalBytes: 100, floorBytes: 10, confirms: 'process', visibility: {} }] });
    t.match(card.attach(1), { kind: 'allocated' });
    t.match(card.attach(1), { kind: 'allocated' }, 'twice is once');
    const taken = card.allocate(1, 50);
    t.match(taken, { kind: 'allocated', allocation: 1 });
    t.match(card.readNow(), { usedBytes: 60, processes: [{ pid: 1, usedBytes: 60 }], takenAtUs: nowUs, truth: 'simulated' });
    t.strictSame(card.allocate(2, 31), { kind: 'oom', wantedBytes: 31, freeBytes: 40 }, 'the first allocation costs the floor too');
    t.equal(card.usedBytes, 60, 'a refusal takes nothing, not even the floor');
    t.match(card.allocate(2, 30), { kind: 'allocated', allocation: 2 });
    t.strictSame(card.allocate(1, 1), { kind: 'oom', wantedBytes: 1, freeBytes: 0 });
    t.match(card.attach(3), { kind: 'oom', freeBytes: 0 });
    t.equal(card.free(2, 1), false, 'not its own');
    t.equal(card.free(1, 9), false, 'not there');
    t.equal(card.free(1, 1), true);
    t.equal(card.free(1, 1), false, 'given back once');
    t.equal(card.usedBytes, 50);
    t.strictSame(card.counters, { oomRefusals: 3, peakUsedBytes: 100 });
    t.match(card.facts(), { device: 'SIM-ab12-0', usedBytes: 50, oomRefusals: 3, peakUsedBytes: 100 });
    t.match(card.allocate(1, 1), { allocation: 3 }, 'a number is never given twice');
    t.match(card.allocate(1, 2, { name: 'kv' }), { allocation: 4 });
    t.match(card.allocate(1, 2, { name: 'kv' }), { allocation: 4 }, 'asked again it is the same');
    t.throws(() => card.allocate(1, 3, { name: 'kv' }), { code: 'bytes_invalid', details: { field: 'bytes of kv, which is allocated', value: '3', minimum: '2', maximum: '2' } }, 'of other bytes it is not');
    t.ok(card.free(1, 4));
    for (const bytes of [0, -1, 1.5, Number.NaN, 2 ** 53]) t.throws(() => card.allocate(1, bytes), { code: 'bytes_invalid' }, String(bytes));
    t.match(await card.read('SIM-ab12-1'), { kind: 'missing', reading: 'unknown' });
  });

  t.test('bytes of an ended process return after the lag, named to nobody; its pid begins anew', async (t) => {
    const card = cardOf('sim:100,floor=10,lag=200ms');
    card.allocate(1, 40);
    card.processGone(1);
    card.processGone(1);
    t.match(card.readNow(), { usedBytes: 50, processes: [] });
    t.match(card.allocate(1, 45), { kind: 'oom', freeBytes: 50 }, 'still there');
    nowUs += 199_999;
    t.equal(card.usedBytes, 50);
    nowUs += 1;
    t.equal(card.usedBytes, 0);
    t.match(card.allocate(1, 45), { kind: 'allocated', allocation: 2 });
    t.equal(card.free(1, 1), false, 'what the former process held is not the new one\'s');
    card.processGone(77);
    t.equal(card.usedBytes, 55);
  });

  t.test('foreign users, blindness and a failing probe', async (t) => {
    const card = cardOf('sim:100,blind');
    t.match(card.setForeign(500, 70), { kind: 'allocated' });
    t.match(card.setForeign(500, 101), { kind: 'oom', freeBytes: 30 });
    t.match(card.setForeign(500, 60), { kind: 'allocated' });
    t.match(card.readNow(), { usedBytes: 60, processes: null });
    t.equal(card.description.confirms, 'total');
    card.setFault({ reading: 'timed_out', reason: 'test' });
    t.match(card.readNow(), { kind: 'missing', reading: 'timed_out' });
    card.setFault(null);
    t.match(card.setForeign(500, 0), { kind: 'allocated' });
    t.match(card.readNow(), { kind: 'read', usedBytes: 0 });
    const seeing = cardOf('sim:100');
    seeing.setForeign(500, 5);
    seeing.allocate(1, 5);
    t.match(seeing.readNow(), { processes: [{ pid: 500, usedBytes: 5 }, { pid: 1, usedBytes: 5 }] });
    await seeing.close();
    t.equal(seeing.usedBytes, 0);
  });
});

t.test('the ladder', async (t) => {
  interface FakeRung extends Rung {
    answer: () => Reading | Promise<Reading>;
    found: Discovery;
    reads: number;
    closed: number;
  }
  let nowUs = 5_000_000;
  const gpu = (device: string, truth: string): CardDescription => ({ device, name: truth, kind: 'gpu', totalBytes: 1_000, confirms: truth === 'nvml' ? 'process' : 'total', display: false, floorBytes: null, visibility: {} });
  const good = (device: string, truth: 'nvml' | 'nvidia-smi', usedBytes: number, counting?: 'v1' | 'v2'): Reading => ({ kind: 'read', device, takenAtUs: nowUs, usedBytes, totalBytes: 1_000, truth, processes: null, ...(counting === undefined ? {} : { counting }) });
  const bad = (device: string, reading: 'failed' | 'timed_out' | 'unsupported', reason: string): Reading => ({ kind: 'missing', device, takenAtUs: nowUs, reading, reason });
  const fake = (truth: 'nvml' | 'nvidia-smi', devices: readonly string[], usedBytes: number): FakeRung => {
    const rung: FakeRung = {
      truth, reads: 0, closed: 0,
      found: { cards: devices.map((device) => gpu(device, truth)), driver: `${truth} driver` },
      answer: () => good(first, truth, usedBytes),
      discover: async () => rung.found,
      read: async (device) => {
        rung.reads += 1;
        return { ...(await rung.answer()), device };
      },
      close: async () => {
        rung.closed += 1;
      },
    };
    return rung;
  };
  const logged: { message: string; fields: Readonly<Record<string, unknown>> }[] = [];
  const log: DeviceLog = (_level, message, fields) => logged.push({ message, fields });
  const jumps = (): readonly Readonly<Record<string, unknown>>[] => logged.filter(({ message }) => /changed rungs/.test(message)).map(({ fields }) => fields);

  t.test('B106: a card is lost when one rung says so and none reads it', async (t) => {
    const nvml = fake('nvml', [first], 100);
    const smi = fake('nvidia-smi', [first], 900);
    const ladder = new DeviceLadder({ rungs: [nvml, smi], nowUs: () => nowUs, log });
    await ladder.discover();
    nvml.answer = () => ({ ...bad(first, 'failed', 'GPU is lost'), lost: true } as Reading);
    t.match(await ladder.read(first), { kind: 'read', truth: 'nvidia-smi' }, 'what anybody reads is there');
    nvml.answer = () => bad(first, 'timed_out', 'hung');
    smi.answer = () => ({ ...bad(first, 'failed', 'no row'), lost: true } as Reading);
    nowUs += 60_000_000;
    t.match(await ladder.read(first), { kind: 'missing', lost: true, reason: /no row/ });
    smi.answer = () => bad(first, 'failed', 'version mismatch');
    t.notOk('lost' in (await ladder.read(first)), 'no rung can tell (B107)');
    await ladder.close();
  });

  t.test('R22, R29: the highest rung that works answers; a jump is told; it climbs back beside the readings', async (t) => {
    logged.length = 0;
    const nvml = fake('nvml', [first.toUpperCase()], 100);
    const smi = fake('nvidia-smi', [first, second], 900);
    const ladder = new DeviceLadder({ rungs: [nvml, smi], nowUs: () => nowUs, log, restFirstMs: 1_000, restLastMs: 4_000 });
    const { cards, drivers, notes } = await ladder.discover();
    t.match(cards, [{ device: first, name: 'nvml', confirms: 'process' }, { device: second, name: 'nvidia-smi', confirms: 'total' }], 'described by the highest rung that knows it');
    t.equal(cards.length, 2);
    t.strictSame(drivers.map(({ truth }) => truth), ['nvml', 'nvidia-smi']);
    t.strictSame(notes, []);
    t.match(await ladder.read(first.toUpperCase().replace('GPU-', '')), { truth: 'nvml', usedBytes: 100, device: first }, 'by any spelling');
    t.match(await ladder.read(second), { truth: 'nvidia-smi', usedBytes: 900 }, 'per card');

    nvml.answer = () => bad(first, 'timed_out', 'hung');
    t.match(await ladder.read(first), { kind: 'read', truth: 'nvidia-smi', usedBytes: 900 }, 'in the same reading');
    t.strictSame(jumps(), [{ device: first, from: 'nvml', to: 'nvidia-smi', usedBytesBefore: 100, usedBytesNow: 900, differenceBytes: 800 }]);
    const readsBefore = nvml.reads;
    await ladder.read(first);
    t.equal(nvml.reads, readsBefore, 'a rung that failed rests');

    let release: (reading: Reading) => void = () => undefined;
    nvml.answer = () => new Promise((resolve) => {
      release = resolve;
    });
    nowUs += 1_000_000;
    t.match(await ladder.read(first), { truth: 'nvidia-smi' }, 'while it is tried again, a hang up there holds up nobody');
    await ladder.read(first);
    t.equal(nvml.reads, readsBefore + 1, 'one try at a time');
    nvml.answer = () => good(first, 'nvml', 110, 'v2');
    release(good(first, 'nvml', 105, 'v2'));
    await until('the ladder to have climbed', () => nvml.reads > 0);
    await new Promise((resolve) => setImmediate(resolve));
    t.match(await ladder.read(first), { truth: 'nvml', usedBytes: 110 });
    t.match(jumps()[1], { from: 'nvidia-smi', to: 'nvml v2' });
    nvml.answer = () => good(first, 'nvml', 700, 'v1');
    await ladder.read(first);
    t.match(jumps()[2], { from: 'nvml v2', to: 'nvml v1' }, 'another way of counting is a jump too');
    await Promise.all([ladder.close(), ladder.close()]);
    t.strictSame([nvml.closed, smi.closed], [1, 1]);
  });

  t.test('B29: when nothing answers the highest rung\'s reading stands, with every reason; and the next reading asks all again', async (t) => {
    const nvml = fake('nvml', [first], 100);
    const smi = fake('nvidia-smi', [first], 900);
    const ladder = new DeviceLadder({ rungs: [nvml, smi], nowUs: () => nowUs });
    await ladder.discover();
    nvml.answer = () => bad(first, 'unsupported', 'N/A');
    smi.answer = () => bad(first, 'failed', 'exit code 9');
    t.strictSame(await ladder.read(first), { kind: 'missing', device: first, takenAtUs: nowUs, reading: 'unsupported', reason: 'nvml: N/A; nvidia-smi: exit code 9' });
    nvml.answer = () => good(first, 'nvml', 5);
    t.match(await ladder.read(first), { truth: 'nvml', usedBytes: 5 });
    t.match(await ladder.read(second), { kind: 'missing', reading: 'unknown' });
    await ladder.close();
  });

  t.test('a machine never has 0 cards: found ones stay, late ones are told, else there is the CPU', async (t) => {
    const nvml = fake('nvml', [first], 100);
    const found: string[] = [];
    nvml.found = { unavailable: 'driver not loaded' };
    const ladder = new DeviceLadder({ rungs: [nvml], nowUs: () => nowUs, log, onCardFound: ({ device }) => found.push(device) });
    const { cards, notes } = await ladder.discover();
    t.match(cards, [{ device: 'CPU-0', kind: 'cpu', totalBytes: 0, floorBytes: 0 }]);
    t.strictSame(notes, ['nvml: driver not loaded']);
    t.match(await ladder.read('CPU-0'), { kind: 'read', usedBytes: 0, totalBytes: 0, truth: 'ledger' });
    nvml.found = { cards: [gpu(first, 'nvml')], driver: 'late' };
    await ladder.read(second);
    t.strictSame(found, [], 'not before its rest is over');
    nowUs += 1_000_000;
    await ladder.read(second);
    await until('the card to be found', () => found.length === 1);
    t.match(await ladder.read(first), { kind: 'read', usedBytes: 100 });
    nvml.found = { unavailable: 'driver unloaded' };
    nvml.answer = () => bad(first, 'failed', 'driver unloaded');
    t.match((await ladder.discover()).cards, [{ device: first }], 'what was found stays');
    t.match(await ladder.read(first), { kind: 'missing', reading: 'failed' });
    await ladder.close();
  });

  t.test('B191: a card on the operator\'s word has its total and no reading; a card without a figure needs such a word', async (t) => {
    const nvml = fake('nvml', [], 0);
    nvml.found = { cards: [], driver: 'x', unmeasured: [{ device: second, name: 'Unified', reason: 'N/A', visibility: { CUDA_VISIBLE_DEVICES: second } }] };
    const bare = new DeviceLadder({ rungs: [nvml], nowUs: () => nowUs });
    t.match(await bare.discover(), { cards: [{ device: 'CPU-0' }], notes: [/GPU-aaaaaaaa.* needs a declared size: N\/A/] });
    const ladder = new DeviceLadder({ rungs: [nvml], nowUs: () => nowUs, declared: [{ device: 'GPU-mine', totalBytes: 16 * gibibyte }, { device: second.toUpperCase(), totalBytes: 8 * gibibyte }] });
    t.match((await ladder.discover()).cards, [
      { device: second, name: 'Unified', totalBytes: 8 * gibibyte, confirms: 'none', visibility: { CUDA_VISIBLE_DEVICES: second } },
      { device: 'GPU-mine', totalBytes: 16 * gibibyte, confirms: 'none', visibility: {} },
    ]);
    t.match(await ladder.read('GPU-mine'), { kind: 'missing', reading: 'unsupported', reason: /declared by the operator/ });
    await ladder.close();
  });

  t.test('R57, B104: a card without memory of its own is read as the machine is, and is known as one', async (t) => {
    const nvml = fake('nvml', [], 0);
    const visibility = { CUDA_VISIBLE_DEVICES: second };
    nvml.found = { cards: [], driver: 'x', unmeasured: [{ device: second, name: 'NVIDIA GB10', reason: 'N/A', visibility }, { device: first, name: 'NVIDIA Odd', reason: 'N/A', visibility: {} }] };
    let silent = false;
    const memory = { machine: () => { if (silent) throw new Unreadable('unknown', 'no /proc/meminfo'); return { totalBytes: 119 * gibibyte, availableBytes: 100 * gibibyte }; } };
    const ladder = new DeviceLadder({ rungs: [nvml], nowUs: () => nowUs, memory });
    t.match(await ladder.discover(), { cards: [{ device: second, name: 'NVIDIA GB10', kind: 'gpu', totalBytes: 119 * gibibyte, confirms: 'none', unified: true, visibility }], notes: [/GPU-11111111.* needs a declared size/] });
    t.match(await ladder.read(second), { kind: 'read', usedBytes: 19 * gibibyte, totalBytes: 119 * gibibyte, truth: 'system', processes: null });
    silent = true;
    t.match(await ladder.read(second), { kind: 'missing', reading: 'unknown', reason: /meminfo/ });
    const late = new DeviceLadder({ rungs: [nvml], nowUs: () => nowUs, memory });
    t.match(await late.discover(), { cards: [{ device: 'CPU-0' }] }, 'unknown is not zero');
    await ladder.close();
  });

  t.test('B52: simulated cards and dead rungs on one ladder, and no helper is left behind', async (t) => {
    const card = new SimulatedCard({ ...parseSimulatedSpec('sim:24MiB'), device: simulatedDevice('ab12', 0) });
    const smi = createNvidiaSmiRung({ command: '/no/such/nvidia-smi', platform: linux });
    const ladder = new DeviceLadder({ rungs: [smi, card] });
    t.match(await ladder.discover(), { cards: [{ device: 'SIM-ab12-0' }], notes: [/could not be started/] });
    card.allocate(process.pid, mebibyte);
    t.match(await ladder.read('SIM-ab12-0'), { usedBytes: mebibyte, truth: 'simulated' });
    await ladder.close();
  });
});
