/** From `hostMemory` of the options to the memory that a broker leases. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { HostMemory, SimulatedCard, cpuCard, defaultHostReserveBytes, type CardDescription } from '../../broker/devices/index.js';
import { createBroker, silentLog, type Broker, type OwnedCard } from '../../broker/shell/index.js';
import { connectBroker } from '../../src/client/index.js';
import { ownHostMemory } from '../../src/orchestrator/host-memory.js';
import type { HostMemoryOptions } from '../../src/orchestrator/options.js';
import type { LedgerState } from '../../src/orchestrator/types.js';
import { folder, quick, until } from '../integration/support.js';

const gib = 1_024 ** 3;
const gpu: CardDescription = { ...cpuCard(), device: 'GPU-a', name: 'NVIDIA H200', kind: 'gpu', totalBytes: 140 * gib, confirms: 'process' };
const simulated: CardDescription = { ...gpu, device: 'SIM-a-0', kind: 'simulated' };

/** A machine of 8 GiB, 6 of them available. */
function machine(t: Test, files: Readonly<Record<string, string>> = {}): string {
  const root = t.testdir();
  const all = { 'proc/meminfo': 'MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n', 'proc/self/cgroup': '0::/job\n', ...files };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const own = (t: Test, options: HostMemoryOptions, cards: readonly CardDescription[] = [gpu], memory = new HostMemory({ platform: 'linux', root: machine(t) })): OwnedCard | null =>
  ownHostMemory(options, cards, 'ab12', silentLog, memory);

t.test('what is leased of the machine’s memory', async (t) => {
  t.match(own(t, {}), { card: { device: 'HOST-0', kind: 'host', totalBytes: 8 * gib }, reserveBytes: gib });
  t.match(own(t, {}, [cpuCard()]), { card: { device: 'HOST-0' } }, 'models on the CPU are nowhere else');
  t.equal(own(t, {}, [simulated]), null, 'simulated models take none of it');
  t.match(own(t, {}, [simulated, cpuCard()]), { card: { device: 'HOST-0' } });
  t.match(own(t, { lease: 'system', reserveBytes: 7 }, [simulated]), { card: { device: 'HOST-0' }, reserveBytes: 7 });
  t.equal(own(t, { lease: 'off' }), null);
  const small = own(t, { lease: 'sim:64MiB,floor=1MiB,name=small' }, [simulated]);
  t.match(small, { card: { device: 'SIM-ab12-memory', name: 'small', kind: 'host', totalBytes: 64 * 1_024 ** 2, confirms: 'process', floorBytes: 1_024 ** 2 }, reserveBytes: 0 });
  t.ok(small?.reader instanceof SimulatedCard);
  t.match(own(t, { lease: 'sim:64MiB,blind' })?.card, { confirms: 'none' });
  for (const lease of ['auto', 'system']) t.equal(own(t, { lease }, [{ ...gpu, unified: true }]), null, 'one ledger where it is one memory');
  t.equal(own(t, {}, [gpu], new HostMemory({ platform: 'darwin' })), null, 'where it cannot be read at all');
});

t.test('a reserve that leaves nothing is a slip, and memory that cannot be read now is leased once it can', async (t) => {
  t.throws(() => own(t, { reserveBytes: 8 * gib }), { code: 'config_invalid', message: /nothing could be granted/ });
  t.throws(() => own(t, { reserveBytes: -1 }), { code: 'bytes_invalid' });
  t.throws(() => own(t, { lease: 'sim:64MiB', reserveBytes: 64 * 1_024 ** 2 }), { code: 'config_invalid' });
  t.throws(() => own(t, { lease: 'sim:lots' }), { code: 'bytes_invalid' });
  const silent = new HostMemory({ platform: 'linux', root: machine(t, { 'proc/meminfo': 'nothing\n' }) });
  t.match(own(t, {}, [gpu], silent), { card: { totalBytes: 0 }, reserveBytes: defaultHostReserveBytes(totalmem()) }, 'by the machine’s own word');
  t.equal(defaultHostReserveBytes(0), 0);
});

/** A broker of the CPU whose machine is a folder. */
async function brokerOn(t: Test, root: string): Promise<{ readonly broker: Broker; readonly ledger: () => Promise<LedgerState> }> {
  const memory = new HostMemory({ platform: 'linux', root });
  const card = cpuCard();
  const cpu: OwnedCard = { card, reader: { read: async () => ({ kind: 'missing', device: card.device, takenAtUs: 0, reading: 'unsupported', reason: 'none' }), close: async () => undefined }, reserveBytes: 0 };
  const owned = ownHostMemory({}, [card], 'x', silentLog, memory);
  if (owned === null) throw new Error('its memory is not leased');
  const broker = await createBroker({ stateFolder: folder(t), engines: [], discover: async () => [cpu, owned], limits: quick });
  const session = await connectBroker({ stream: broker.attachInMemory(), secret: broker.secret, role: 'holder', name: 'a test' });
  t.teardown(async () => {
    await session.close();
    await broker.close();
  });
  return { broker, ledger: () => session.ledger<LedgerState>() };
}

t.test('R57: the limit of a cgroup is the machine’s size, as it changes; and what cannot be read is no room', async (t) => {
  const stat = 'anon 1\nfile 2\nshmem 0\ninactive_file 0\nactive_file 0\nslab_reclaimable 0\n';
  const root = machine(t, {
    'proc/self/mountinfo': '30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n',
    'sys/fs/cgroup/job/memory.max': `${3 * gib}\n`, 'sys/fs/cgroup/job/memory.current': `${gib}\n`, 'sys/fs/cgroup/job/memory.stat': stat,
  });
  const { broker, ledger } = await brokerOn(t, root);
  t.strictSame(broker.devices.map(({ device }) => device), ['CPU-0'], 'it is no card');
  await until('a reading', async () => (await ledger()).host?.sampledUsedBytes === gib);
  t.match((await ledger()).host, { device: 'HOST-0', totalBytes: 3 * gib, reserveBytes: gib, truth: 'system', missing: null });
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.max'), `${2 * gib}\n`);
  await until('the lower limit', async () => (await ledger()).host?.totalBytes === 2 * gib);
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.max'), `${gib / 4}\n`);
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.current'), `${gib / 8}\n`);
  await until('a limit of a twelfth', async () => (await ledger()).host?.totalBytes === gib / 4);
  t.match((await ledger()).host, { reserveBytes: gib / 8, missing: null }, 'the default reserve goes with it');
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.max'), 'max\n');
  await until('no limit', async () => (await ledger()).host?.totalBytes === 8 * gib);
  t.match((await ledger()).host, { reserveBytes: gib, missing: null }, 'a container that is resized goes on');
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.max'), `${2 * gib}\n`);
  writeFileSync(join(root, 'sys/fs/cgroup/job/memory.stat'), 'unreadable\n');
  await until('the reading to be missing', async () => (await ledger()).host?.missing?.reading === 'unknown');
});
