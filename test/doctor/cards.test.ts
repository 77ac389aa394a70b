/** Rungs, cards and masks, over rungs that say what they are told, a fake nvidia-smi and a fake NVML. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { createNvidiaSmiRung, createNvmlRung } from '../../broker/devices/index.js';
import { driverAdvice } from '../../src/doctor/advice/driver.js';
import { judgeCard, judgeSettings, judgeXids } from '../../src/doctor/checks/cards.js';
import { judgeMask } from '../../src/doctor/checks/masks.js';
import { parseSettings } from '../../src/doctor/machine/nvidia-settings.js';
import { parseXids } from '../../src/doctor/machine/xid.js';
import type { BrokerSeen } from '../../src/doctor/running-broker.js';
import type { CardSeen } from '../../src/doctor/survey.js';
import { card, findingBy, findingsBy, first, fixtureMachine, fixtureScene, gibibyte, linux, mebibyte, missing, nvidiaOnBus, reading, rung, second } from './fixture.js';

const none: BrokerSeen = { kind: 'none', leftovers: [], workers: [] };
const nvml = (library = 'libnvidia-ml.so.1'): Parameters<typeof rung>[1] => ({ cards: [card(first)], driver: '580.159', library });
const seen = (device: string, changes: Partial<CardSeen> = {}): CardSeen => ({ device, name: 'Card', description: card(device), unmeasured: null, readings: [{ truth: 'nvml', reading: reading(device) }], ...changes });

t.test('rungs that work say how well', async (t) => {
  const folder = t.testdir();
  const scene = fixtureScene(join(folder, 'good'), { files: nvidiaOnBus, rungs: [rung('nvml', nvml(), [reading(first)]), rung('nvidia-smi', { cards: [card(first)], driver: '580.159' }, [reading(first, { truth: 'nvidia-smi' })])] });
  t.match(await findingBy(scene, 'rungs.nvml'), { verdict: 'ok', found: /^libnvidia-ml\.so\.1, driver 580\.159, 1 card, counting as v2, a reading in [\d.]+ ms, memory by process: yes$/ });
  t.match(await findingBy(scene, 'rungs.nvidia-smi'), { verdict: 'ok', found: /^driver 580\.159, 1 card/ });
  t.match(await findingBy(scene, 'rungs.amdgpu'), { verdict: 'not_applicable' });
  t.match(await findingBy(scene, 'rungs.bus'), { verdict: 'ok', found: 'nvidia 0000:65:00.0 (nvidia)' });
  t.match(await findingBy(scene, 'rungs.ladder'), { verdict: 'ok', found: 'nvml, then nvidia-smi' });

  t.test('and what they lack', async (t) => {
    const blind = (platform: typeof linux | { name: 'linux'; wsl: boolean; firstPidNamespace: boolean }, name: string) => fixtureScene(join(folder, name), { platform, rungs: [rung('nvml', { ...nvml(), cards: [card(first, { confirms: 'total' })] }, [reading(first, { counting: 'v1', processes: null })])] });
    t.match(await findingBy(blind({ ...linux, firstPidNamespace: false }, 'container'), 'rungs.nvml'), { verdict: 'warning', found: /counting as v1.*memory by process: no; v1 counts.*container's namespace/, advice: /--pid=host/ });
    t.match(await findingBy(blind({ ...linux, wsl: true }, 'wsl'), 'rungs.nvml'), { verdict: 'warning', found: /under WDDM/, advice: /total instead/ });
    t.match(await findingBy(blind(linux, 'plain'), 'rungs.nvml'), { verdict: 'warning', found: /the driver does not tell/ });
  });
});

t.test('rungs that do not work are a problem where they have cards to show', async (t) => {
  const folder = t.testdir();
  const mismatch = 'nvmlInit_v2: driver and library versions differ (18)';
  const broken = fixtureScene(join(folder, 'broken'), { files: nvidiaOnBus, rungs: [rung('nvml', { unavailable: mismatch }), rung('nvidia-smi', { unavailable: 'nvidia-smi printed no such card (exit code 18): Failed to initialize NVML: Driver/library version mismatch' })] });
  t.match(await findingBy(broken, 'rungs.nvml'), { verdict: 'problem', found: mismatch, advice: /reboot, or unload/ });
  t.match(await findingBy(broken, 'rungs.nvidia-smi'), { verdict: 'problem', advice: /reboot, or unload/ });
  t.match(await findingBy(broken, 'rungs.bus'), { verdict: 'warning', found: /the driver has 1 card, and 0 can be read/ });
  t.match(await findingBy(broken, 'rungs.ladder'), { verdict: 'ok', found: /none works here/ });
  const absent = fixtureScene(join(folder, 'absent'), { rungs: [rung('nvml', { unavailable: 'libnvidia-ml.so.1: cannot open shared object file' }), rung('nvidia-smi', { unavailable: 'nvidia-smi could not be started: spawn nvidia-smi ENOENT' }), rung('amdgpu', { unavailable: 'no amdgpu card in sysfs' })] });
  for (const id of ['rungs.nvml', 'rungs.nvidia-smi', 'rungs.amdgpu', 'rungs.bus', 'cards', 'cards.settings', 'cards.xid']) t.match(await findingBy(absent, id), { verdict: 'not_applicable' }, id);
  const half = fixtureScene(join(folder, 'half'), { files: nvidiaOnBus, rungs: [rung('nvml', nvml(), [reading(first)]), rung('nvidia-smi', { unavailable: 'nvidia-smi could not be started: spawn nvidia-smi ENOENT' })] });
  t.match(await findingBy(half, 'rungs.nvidia-smi'), { verdict: 'warning', advice: /nothing takes over when nvml hangs/ });
  const lost = fixtureScene(join(folder, 'lost'), { files: nvidiaOnBus, rungs: [rung('nvml', nvml(), [missing(first, 'nvmlDeviceGetMemoryInfo_v2: GPU is lost (15)')])] });
  t.match(await findingBy(lost, 'rungs.nvml'), { verdict: 'problem', found: /cannot be read \(nvmlDevice.*GPU is lost/, advice: /fallen off the bus/ });
});

t.test('the bus shows what no driver does', async (t) => {
  const folder = t.testdir();
  const on = (name: string, files: Readonly<Record<string, string>>, shown = 1) => findingBy(fixtureScene(join(folder, name), { files, rungs: [rung('nvml', { cards: Array.from({ length: shown }, () => card(first)), driver: '1' }, [reading(first)])] }), 'rungs.bus');
  const { 'dev/nvidia0': _node, ...noNode } = nvidiaOnBus;
  const { 'dev/nvidia-uvm': _uvm, ...noUvm } = nvidiaOnBus;
  t.match(await on('nouveau', { ...nvidiaOnBus, 'sys/bus/pci/devices/0000:65:00.0/driver': '->../nouveau' }), { verdict: 'problem', found: /driven by nouveau/, advice: /blacklist nouveau/ });
  t.match(await on('vfio', { ...nvidiaOnBus, 'sys/bus/pci/devices/0000:65:00.0/driver': '->../vfio-pci' }), { verdict: 'warning', found: /virtual machine/ });
  t.match(await on('no-node', noNode), { verdict: 'problem', found: /no \/dev\/nvidia0/, advice: /--gpus all/ });
  t.match(await on('no-uvm', noUvm), { verdict: 'warning', found: /nvidia-uvm/ });
  t.match(await on('two', { ...nvidiaOnBus, 'sys/bus/pci/devices/0000:b3:00.0/vendor': '0x10de\n', 'sys/bus/pci/devices/0000:b3:00.0/class': '0x030000\n', 'sys/bus/pci/devices/0000:b3:00.0/driver': '->../nvidia' }), { verdict: 'warning', found: /the driver has 2 cards, and 1 can be read/, advice: /xid/ });
  t.match(await on('amd', { 'sys/bus/pci/devices/0000:03:00.0/vendor': '0x1002\n', 'sys/bus/pci/devices/0000:03:00.0/class': '0x038000\n' }, 0), { verdict: 'problem', found: /not driven by anything/, advice: /amdgpu/ });
  t.match(await on('amd-nodes', { 'sys/bus/pci/devices/0000:03:00.0/vendor': '0x1002\n', 'sys/bus/pci/devices/0000:03:00.0/class': '0x038000\n', 'sys/bus/pci/devices/0000:03:00.0/driver': '->../amdgpu' }, 0), { verdict: 'problem', found: /renderD128/, advice: /--device \/dev\/dri/ });
  t.match(await on('network', { 'sys/bus/pci/devices/0000:01:00.0/vendor': '0x10de\n', 'sys/bus/pci/devices/0000:01:00.0/class': '0x020000\n' }), { verdict: 'not_applicable' });
});

t.test('each card', async (t) => {
  const machine = fixtureMachine(t.testdir(), { files: { 'proc/4001/comm': 'python3\n' } });
  const judge = (changes: Partial<CardSeen>, broker: BrokerSeen = none) => judgeCard(seen(first, changes), broker, machine);
  t.match(await judge({}), { verdict: 'ok', found: `${first}, 1.0 GiB used of 24.0 GiB by nvml; 256.0 MiB are kept free by default; no process of others on it` });
  t.match(await judge({ description: card(first, { display: true }) }), { found: /with a display; 1\.2 GiB are kept free/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first, { processes: [{ pid: 4001, usedBytes: 4 * gibibyte }, { pid: 4002, usedBytes: 1 }] }) }] }), { verdict: 'warning', found: /on it: python3 \(pid 4001\) 4\.0 GiB, somebody \(pid 4002\) 1 B; 4\.0 GiB of it are others'/, advice: /never evicted/ });
  const ours = { kind: 'running', pid: 1, since: null, answerMs: 1, ledger: { cards: [{ device: first, foreignBytes: 2 * gibibyte }], workers: [{ pid: 4001 }], holders: [{ pid: 4002 }], waiting: [] } } as unknown as BrokerSeen;
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first, { processes: [{ pid: 4001, usedBytes: 4 * gibibyte }, { pid: 4002, usedBytes: 1 }] }) }] }, ours), { verdict: 'ok', found: /no process of others/ }, 'a broker\'s own are no strangers');
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first, { processes: null }) }] }, ours), { verdict: 'warning', found: /of others 2\.0 GiB/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first, { processes: null, usedBytes: 100 }) }] }), { verdict: 'ok', found: /by whom is not known/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: missing(first, 'no answer from NVML within 3000 ms') }, { truth: 'nvidia-smi', reading: reading(first, { truth: 'nvidia-smi', processes: null, usedBytes: 1 }) }] }), { verdict: 'warning', found: /by nvidia-smi.*not read by nvml: no answer/, advice: /driver hangs/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: missing(first, 'GPU is lost') }] }), { verdict: 'problem', found: /cannot be read \(nvml: GPU is lost\)/, advice: /XID 79/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first) }, { truth: 'nvidia-smi', reading: reading(first, { truth: 'nvidia-smi', usedBytes: 9 * gibibyte }) }] }), { verdict: 'warning', found: /nvml says 1\.0 GiB of 24\.0 GiB, nvidia-smi 9\.0 GiB/ });
  t.match(await judge({ readings: [{ truth: 'nvml', reading: reading(first, { totalBytes: 100 * mebibyte, usedBytes: 0 }) }], description: card(first, { totalBytes: 100 * mebibyte }) }), { verdict: 'problem', found: /nothing is left to lease/, advice: /reserve/ });
  t.match(await judge({ description: null, unmeasured: { device: first, name: 'Card', reason: 'in MIG mode; nvidia-smi does not list its slices here', visibility: {} }, readings: [] }), { verdict: 'warning', advice: /-mig 0/ });
  t.match(await judge({ description: null, unmeasured: { device: first, name: 'Card', reason: 'NVML gives no memory figure for this card', visibility: {} }, readings: [] }), { verdict: 'warning', advice: /no memory figures/ });
  t.match(await judgeCard(seen('MIG-99999999-8888-7777-6666-555555555555'), none, machine), { found: /a MIG slice/ });
});

t.test('settings and errors of NVIDIA cards', async (t) => {
  const rows = (mode: string, persistence: string, display: string, errors: string) => judgeSettings(parseSettings(`warning\n${first}, ${mode}, ${persistence}, ${display}, ${errors}\n`));
  t.match(rows('Default', 'Enabled', 'Disabled', '0'), { verdict: 'ok', found: /compute mode Default, persistence Enabled, memory errors 0/ });
  t.match(rows('Exclusive_Process', 'Enabled', 'Disabled', '0'), { verdict: 'problem', found: /one process alone/, advice: new RegExp(`-i ${first} -c DEFAULT`) });
  t.match(rows('Prohibited', 'Enabled', 'Disabled', '0'), { verdict: 'problem', found: /lets nobody compute/ });
  t.match(rows('Default', 'Disabled', 'Disabled', '[N/A]'), { verdict: 'warning', found: /not counted.*woken by each first use/, advice: /persistenced/ });
  t.match(rows('Default', 'Disabled', 'Enabled', '[N/A]'), { verdict: 'ok' }, 'a display keeps the driver open');
  t.match(rows('Default', 'Enabled', 'Disabled', '3'), { verdict: 'problem', found: /3 uncorrected memory errors/ });
  const folder = t.testdir();
  const smi = [rung('nvidia-smi', { cards: [card(first)], driver: '1' }, [reading(first)])];
  t.match(await findingBy(fixtureScene(join(folder, 'good'), { rungs: smi, commands: { 'nvidia-smi': `echo "${first}, Default, Enabled, Disabled, 0"` } }), 'cards.settings'), { verdict: 'ok' });
  t.match(await findingBy(fixtureScene(join(folder, 'bad'), { rungs: smi, commands: { 'nvidia-smi': 'echo "Field is not valid" >&2; exit 2' } }), 'cards.settings'), { verdict: 'warning', found: /could not be read/ });

  t.match(judgeXids([]), { verdict: 'ok' });
  t.match(judgeXids(parseXids('[1] NVRM: Xid (PCI:0000:65:00): 79, pid=1\n[2] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen\n[3] NVRM: Xid (PCI:0000:65:00): 31, pid=4\n')), { verdict: 'problem', found: 'XID 79 of 0000:65:00, 2 times: the card fell off the bus; XID 31 of 0000:65:00: a program used memory that it does not have' });
  t.match(judgeXids(parseXids('NVRM: Xid (PCI:0000:65:00): 31, pid=4\nNVRM: Xid (PCI:0000:65:00): 999, x')), { verdict: 'warning', found: /999.*not one that is known/, advice: /not of the card/ });
  t.match(await findingBy(fixtureScene(join(folder, 'log'), { files: nvidiaOnBus, commands: { dmesg: 'echo "NVRM: Xid (PCI:0000:65:00): 48, x"' } }), 'cards.xid'), { verdict: 'problem' });
  t.match(await findingBy(fixtureScene(join(folder, 'no-log'), { files: nvidiaOnBus, commands: { dmesg: 'exit 1' } }), 'cards.xid'), { verdict: 'not_applicable' });
});

t.test('masks', async (t) => {
  const cards = [seen(second, { name: 'Slow' }), seen(first, { name: 'Fast' })];
  const cuda = { name: 'CUDA_VISIBLE_DEVICES', cards: 'nvidia', words: { '': 'no card', '-1': 'no card' } } as const;
  const byBus = { CUDA_DEVICE_ORDER: 'PCI_BUS_ID' };
  t.match(judgeMask(cuda, '0,1', cards, byBus), { verdict: 'ok', found: `0 is ${second}, 1 is ${first}` }, 'in the driver\'s order');
  t.match(judgeMask(cuda, '0,1', cards, {}), { verdict: 'warning', found: /fastest first/, advice: /CUDA_DEVICE_ORDER/ });
  t.match(judgeMask(cuda, '0', cards, byBus), { verdict: 'warning', found: /1 of 2 cards are hidden/, advice: /Leasehold finds cards by UUID/ });
  t.match(judgeMask(cuda, `${first.toUpperCase()},GPU-aaaa`, cards, {}), { verdict: 'ok', found: `${first.toUpperCase()} is ${first}, GPU-aaaa is ${second}` });
  t.match(judgeMask(cuda, '7,1', cards, byBus), { verdict: 'warning', found: /7 is no card here, 1 is .*goes no further/, advice: new RegExp(first) });
  t.match(judgeMask(cuda, '0,0', cards, byBus), { verdict: 'warning', found: /stands there twice/ });
  t.match(judgeMask(cuda, '-1', cards, {}), { verdict: 'warning', found: '"-1": no card' });
  t.match(judgeMask(cuda, '-1', [], {}), { verdict: 'ok' }, 'where there is none, none is hidden');
  t.match(judgeMask(cuda, 'GPU-1', [], {}), { verdict: 'warning', advice: /no such card here at all/ });
  const folder = t.testdir();
  const rungs = [rung('nvml', { cards: [card(second), card(first)], driver: '1' }, [reading(first), reading(second)])];
  t.match(await findingsBy(fixtureScene(folder, { rungs, env: { NVIDIA_VISIBLE_DEVICES: 'all', CUDA_VISIBLE_DEVICES: '' } }), 'masks'), [
    { id: 'masks.CUDA_VISIBLE_DEVICES', verdict: 'warning', found: '"": no card' }, { id: 'masks.NVIDIA_VISIBLE_DEVICES', verdict: 'ok', found: '"all": all cards' },
  ]);
  t.match(await findingsBy(fixtureScene(join(folder, 'none')), 'masks'), [{ verdict: 'ok', found: 'none is set' }]);
});

t.test('what a driver says has its advice', async (t) => {
  for (const [said, advice] of [
    ['nvmlInit_v2: no permission (4)', /groups/], ['nvmlInit_v2: driver not loaded (9)', /modprobe nvidia/], ['reset required (16)', /gpu-reset/],
    ['no word from the NVML helper within 20000 ms of its start', /dmesg/], ['NVML says 5 of 4 bytes, which cannot be', /contradict/],
    ['libnvidia-ml.so.1: cannot open shared object file: No such file or directory', /--gpus all/], ['something new', /nvidia-smi/],
  ] as const) t.match(driverAdvice(said), advice, said);
});

const library = join(t.testdir(), 'libfake-nvml.so');
const source = fileURLToPath(new URL('../../../test/broker/devices/fake-nvml.c', import.meta.url));
const compiler = spawnSync('gcc', ['-shared', '-fPIC', '-O1', '-o', library, source], { encoding: 'utf8' });

if (compiler.error !== undefined) {
  t.comment('no gcc here: the library itself is not tried, and the rungs above stand for it');
} else {
  t.test('the real rungs over a fake library and a fake nvidia-smi', async (t) => {
    const folder = t.testdir();
    t.equal(compiler.status, 0, compiler.stderr);
    const sceneOf = (name: string, words: string) => {
      mkdirSync(join(folder, name), { recursive: true });
      const told = join(folder, name, 'words');
      writeFileSync(told, words);
      const smi = join(folder, name, 'bin', 'nvidia-smi');
      return fixtureScene(join(folder, name), {
        files: nvidiaOnBus, commands: { 'nvidia-smi': `echo "${first}, 143771, 1000, Disabled, Disabled, 580.159.03, Fake H200"` },
        rungs: [createNvmlRung({ platform: linux, libraryPaths: [library], environment: { FAKE_NVML: told }, probeTimeoutMs: 10_000 }), createNvidiaSmiRung({ command: smi, platform: linux, probeTimeoutMs: 10_000 })],
      });
    };
    const good = sceneOf('good', '');
    t.match(await findingBy(good, 'rungs.nvml'), { verdict: 'ok', found: new RegExp(`^${library}, driver 580\\.159\\.03, 2 cards, counting as v2`) });
    t.match(await findingsBy(good, 'cards'), [{ id: `cards.${first}`, title: 'Fake H200', found: /1000\.0 MiB used of 140\.4 GiB by nvml.*\(pid 4001\) 500\.0 MiB/ }, { id: `cards.${second}`, found: /with a display/ }]);
    await good.close();
    const old = sceneOf('old', 'v1-only\nno-processes\n');
    t.match(await findingBy(old, 'rungs.nvml'), { verdict: 'warning', found: /counting as v1.*memory by process: no/ });
    await old.close();
    const sliced = sceneOf('mig', 'mig\n');
    t.match(await findingsBy(sliced, 'cards'), [{ title: 'Fake slice', found: /a MIG slice/ }, {}, {}]);
    await sliced.close();
    const unloaded = sceneOf('unloaded', 'no-driver\n');
    t.match(await findingBy(unloaded, 'rungs.nvml'), { verdict: 'warning', found: /driver not loaded \(9\)/, advice: /modprobe nvidia.*Meanwhile nvidia-smi is read/ });
    await unloaded.close();
  });
}
