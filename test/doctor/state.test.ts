/** The state folder and the broker on it: looked at, found, and left as they were. */
import { chmodSync, linkSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { SimulatedCard } from '../../broker/devices/index.js';
import { lockFile } from '../../broker/shell/file-lock.js';
import { createBroker, stateNames } from '../../broker/shell/index.js';
import { judgeBroker } from '../../src/doctor/checks/broker.js';
import { judgeRoom } from '../../src/doctor/checks/state.js';
import { parseHeldLocks } from '../../src/doctor/locks.js';
import { createMachine } from '../../src/doctor/machine/machine.js';
import { lookForBroker, parseSignature } from '../../src/doctor/running-broker.js';
import { createScene, type Scene } from '../../src/doctor/scene.js';
import { findingBy, fixtureScene, gibibyte, mebibyte } from './fixture.js';

type Tap = typeof t;

/** Short, so that sockets have names. */
function scratch(t: Pick<Tap, 'teardown'>): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-state-'));
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }); });
  return folder;
}

/** This machine, with a state folder of the test. */
function sceneOn(state: string, cardLocksPath = join(state, '..', 'cards')): Scene {
  return createScene({ machine: createMachine({ env: { LEASEHOLD_CONFIG: '' }, cwd: '/', home: '/' }), rungs: [], flags: { state }, cardLocksPath });
}

t.test('the folder', async (t) => {
  const folder = scratch(t);
  const state = join(folder, 'state');
  t.match(await findingBy(sceneOn(state), 'state.folder'), { verdict: 'ok', found: /not there yet/ });
  t.match(await findingBy(sceneOn(state), 'state.files'), { verdict: 'not_applicable' });
  t.match(await findingBy(sceneOn('/proc/nothing/state'), 'state.folder'), { verdict: process.getuid?.() === 0 ? /ok|problem/ : 'problem' });
  t.match(await findingBy(sceneOn(join(folder, 'x'.repeat(100))), 'state.path'), { verdict: 'problem', found: /of 107 bytes/, advice: /LEASEHOLD_STATE/ });
  t.match(await findingBy(sceneOn(state), 'state.path'), { verdict: 'ok' });

  mkdirSync(state, { mode: 0o755 });
  t.match(await findingBy(sceneOn(state), 'state.folder'), { verdict: 'warning', found: /^mode 0755.*open to others/, advice: `Close it now: \`chmod 0700 ${state}\`; whoever read the secret meanwhile can pass for you.` });
  t.equal(lstatSync(state).mode & 0o777, 0o755, 'looking closes nothing');
  chmodSync(state, 0o700);
  t.match(await findingBy(sceneOn(state), 'state.folder'), { verdict: 'ok', found: /^mode 0700/ });
  symlinkSync(state, join(folder, 'link'));
  t.match(await findingBy(sceneOn(join(folder, 'link')), 'state.folder'), { verdict: 'problem', found: /symbolic link/ });
  writeFileSync(join(folder, 'file'), '');
  t.match(await findingBy(sceneOn(join(folder, 'file')), 'state.folder'), { verdict: 'problem', found: 'it is no folder' });
  const stranger = fixtureScene(folder, { uid: 4_321 });
  t.match(await findingBy(stranger, 'state.folder'), { verdict: 'problem', found: /belongs to uid \d+, and this is uid 4321/ });
});

t.test('its files', async (t) => {
  const state = scratch(t);
  const { secretPath, lockPath, socketPath } = stateNames(state);
  const secret = 'ab'.repeat(32);
  writeFileSync(secretPath, `${secret}\n`, { mode: 0o600 });
  writeFileSync(lockPath, '{}', { mode: 0o600 });
  t.match(await findingBy(sceneOn(state), 'state.files'), { verdict: 'ok', found: '2 entries: broker.lock, secret' });
  chmodSync(secretPath, 0o644);
  const open = await findingBy(sceneOn(state), 'state.files');
  t.match(open, { verdict: 'warning', advice: new RegExp(`chmod 0600 ${secretPath}`) });
  t.notMatch(JSON.stringify(open), secret, 'a secret is told to nobody');
  writeFileSync(secretPath, 'short');
  t.match(await findingBy(sceneOn(state), 'state.files'), { verdict: 'problem', found: /64 hex digits/ });
  rmSync(secretPath);
  mkdirSync(secretPath);
  symlinkSync('/etc/passwd', socketPath);
  t.match(await findingBy(sceneOn(state), 'state.files'), { verdict: 'problem', found: /secret is a folder and must be a file|broker\.sock is a symbolic link and must be a socket/ });
  t.equal((await lookForBroker(createMachine(), state)).kind, 'none');
});

t.test('its disk', async (t) => {
  t.match(judgeRoom(10 * gibibyte, null), { verdict: 'ok', found: '10.0 GiB free' });
  t.match(judgeRoom(10 * mebibyte, 1_000_000), { verdict: 'warning' });
  t.match(judgeRoom(1_000, 1_000_000), { verdict: 'problem', found: /could not start/ });
  t.match(judgeRoom(10 * gibibyte, 0), { verdict: 'problem' });
  const folder = t.testdir();
  const mounted = (name: string, line: string) => findingBy(fixtureScene(join(folder, name), { files: { 'proc/self/mountinfo': `1 0 0:1 / ${line}\n` } }), 'state.mount');
  t.match(await mounted('tmpfs', '/ rw,noexec - tmpfs t rw'), { verdict: 'ok', found: /tmpfs at \/, noexec \(which does no harm/ });
  t.match(await mounted('nfs', '/ rw - nfs4 server rw'), { verdict: 'warning', found: /over a network/ });
  t.match(await mounted('vfat', '/ rw - vfat d rw'), { verdict: 'problem', found: /no sockets/ });
  t.match(await mounted('ro', '/ ro - ext4 d ro'), { verdict: 'problem', found: /read-only/ });
});

t.test('a broker that runs is found and told, and neither it nor its folder is changed', async (t) => {
  const folder = scratch(t);
  const state = join(folder, 'state');
  const reader = new SimulatedCard({ device: 'SIM-doctor-0', totalBytes: 24 * mebibyte, floorBytes: 0, lagMs: 0, blind: false, name: null });
  const broker = await createBroker({ stateFolder: state, engines: [], discover: async () => [{ card: reader.description, reader, reserveBytes: 0 }], facts: () => ({ version: '0.0.1' }) });
  try {
    const before = readdirSync(state).map((name) => [name, lstatSync(join(state, name)).mtimeMs]);
    const found = await findingBy(sceneOn(state), 'broker.running');
    t.match(found, { verdict: 'warning', found: new RegExp(`^one runs: pid ${process.pid}, since 20.* version 0\\.0\\.1, 0 workers, 0 requests waiting; it owns SIM-doctor-0 with 0 leased of 24\\.0 MiB; \\d+ of \\d+ files open; this command is version`), advice: /Start it anew/ });
    t.strictSame(readdirSync(state).map((name) => [name, lstatSync(join(state, name)).mtimeMs]), before);
    // Without the secret it cannot be asked, and that is told.
    const secret = readFileSync(stateNames(state).secretPath, 'utf8');
    writeFileSync(stateNames(state).secretPath, 'cd'.repeat(32));
    t.match(await findingBy(sceneOn(state), 'broker.running'), { verdict: 'problem', found: new RegExp(`one is there \\(pid ${process.pid},.*cannot be asked`), advice: new RegExp(`kill ${process.pid}`) });
    writeFileSync(stateNames(state).secretPath, secret);
    t.match(await findingBy(sceneOn(state), 'broker.running'), { verdict: 'warning' });
  } finally {
    await broker.close();
  }
  t.match(await findingBy(sceneOn(state), 'broker.running'), { verdict: 'ok', found: 'none runs on this state folder' });
});

t.test('what a broker has left, and one that hangs', async (t) => {
  const state = scratch(t);
  const { socketPath, lockPath } = stateNames(state);
  const server = createServer();
  await new Promise<void>((resolve) => { server.listen(socketPath, resolve); });
  t.match(await lookForBroker(createMachine(), state), { kind: 'unreachable', reason: /secret cannot be read/ }, 'somebody answers, and may not be asked');
  // A socket whose process was killed: nobody listens any more.
  const stale = `${socketPath}.kept`;
  linkSync(socketPath, stale);
  await new Promise((resolve) => { server.close(resolve); });
  renameSync(stale, socketPath);
  writeFileSync(stateNames(state).secretPath, 'ab'.repeat(32), { mode: 0o600 });
  t.strictSame(await lookForBroker(createMachine(), state), { kind: 'none', leftovers: ['broker.sock'], workers: [] });
  t.match(judgeBroker({ kind: 'none', leftovers: ['broker.sock'], workers: [] }, '1', 0), { verdict: 'ok', found: /one that was killed has left broker\.sock/ });
  const orphaned = judgeBroker({ kind: 'none', leftovers: ['broker.sock'], workers: [{ pid: 41, graceMs: 30_000 }, { pid: 42, graceMs: null }] }, '1', 0);
  t.match(orphaned, { verdict: 'warning', found: /has left broker\.sock, which the next start removes; 2 workers live on \(pid 41, 42\), for the next one$/, advice: /^Start it again with `leasehold up`: it takes them over with what they have loaded\. Else they end by themselves, within 30 s at the latest\.$/ });
  const lock = lockFile(lockPath);
  t.match(await lookForBroker(createMachine(), state), { kind: 'unreachable', pid: process.pid, reason: 'it holds the lock and nobody listens at its socket' });
  rmSync(socketPath);
  t.match(await lookForBroker(createMachine(), state), { kind: 'unreachable', pid: process.pid, reason: /just starting, or just ending/ });
  lock.release();
  t.strictSame(await lookForBroker(createMachine(), state), { kind: 'none', leftovers: [], workers: [] });
});

t.test('a broker that answers slowly, or cannot read a card', async (t) => {
  const ledger = { cards: [{ device: 'GPU-1', totalBytes: gibibyte, leasedBytes: 0, missing: { reading: 'timed_out', sinceMs: 5_000 }, thrashing: null }], workers: [{}], waiting: [], version: '1' };
  const seen = { kind: 'running', pid: 7, since: '2026-01-01T00:00:00.000Z', ledger, answerMs: 4_000 } as unknown as Parameters<typeof judgeBroker>[0];
  const found = judgeBroker(seen, '1', Date.parse('2026-01-01T01:00:00.000Z'));
  t.match(found, { verdict: 'problem', found: /since 2026-01-01T00:00:00\.000Z \(1 h 00 m\).*took 4\.0 s to answer; it cannot read GPU-1 \(timed_out for 5\.0 s\)/ });
  const thrashing = { sinceMs: 9_000, shareOfTime: 0.4, windowMs: 120_000, models: [{ model: 'a', loads: 2, loadMs: 8_000 }, { model: 'b', loads: 1, loadMs: 4_000 }], neededBytes: 30 * gibibyte, capacityBytes: 24 * gibibyte };
  const turns = { ...seen, answerMs: 10, ledger: { ...ledger, cards: [{ device: 'GPU-1', totalBytes: gibibyte, leasedBytes: 0, missing: null, thrashing }] } } as unknown as typeof seen;
  t.match(judgeBroker(turns, '1', 0), { verdict: 'warning', found: /GPU-1 thrashes: 40 % of the last 2 m 00 s .* a \(2 times, 8\.0 s\), b \(once, 4\.0 s\); 6\.0 GiB are lacking/, advice: /smaller context.*leasehold pin MODEL/ });
  t.match(judgeBroker(seen, '1', 0, { open: 900, limit: 1_024 }), { found: /900 of 1024 files open;.*few are left/, advice: /LimitNOFILE/ });
});

t.test('cards that another broker of this user owns', async (t) => {
  const folder = scratch(t);
  const cards = join(folder, 'cards');
  mkdirSync(cards);
  const device = 'GPU-11111111-2222-3333-4444-555555555555';
  const lock = lockFile(join(cards, `${device}.lock`), { socket: '/run/elsewhere/state/broker.sock' });
  t.match(await findingBy(sceneOn(join(folder, 'state'), cards), 'broker.elsewhere'), { verdict: 'warning', found: new RegExp(`pid ${process.pid} owns ${device} since 20`), advice: /--state \/run\/elsewhere\/state/ });
  lock.release();
  t.match(await findingBy(sceneOn(join(folder, 'state'), cards), 'broker.elsewhere'), { verdict: 'ok' });
  t.strictSame(parseHeldLocks('1: FLOCK  ADVISORY  WRITE 17 fe:00:99 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 18 fe:00:99 0 EOF\n3: POSIX  ADVISORY  WRITE 19 fe:00:98 0 EOF\n4: FLOCK  ADVISORY  WRITE -1 fe:00:97 0 EOF\n'), [{ pid: 17, inode: '99' }, { pid: 0, inode: '97' }]);
  t.strictSame(parseSignature('no json'), { pid: null, since: null, socket: null });
});
