/** A broker whose files are taken from under it: what is put back, what is left alone, and when it ends instead. */
import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, readFileSync, readlinkSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { LeaseholdError } from '../../../protocol/index.js';
import { connect, listen, type ByteStream } from '../../../protocol/node/index.js';
import { createBroker } from '../../../broker/shell/index.js';
import { lockFile } from '../../../broker/shell/file-lock.js';
import { Keeper, type KeeperOptions } from '../../../broker/shell/keeper.js';
import { silentLog } from '../../../broker/shell/log.js';
import { openStateFolder, readStateFolder } from '../../../broker/shell/state-folder.js';
import { createOrchestrator, type Orchestrator } from '../../../src/orchestrator/index.js';
import { folder, open, peer, refusal, scripted, socketsIn, thrown, until, workerPid } from '../../integration/support.js';

const anHourMs = 3_600_000;

const models = { a: scripted({ text: 'hello' }), b: scripted({ text: 'hello', computeBytes: 1_000_000 }), c: scripted({ text: 'hello', computeBytes: 2_000_000 }) };
const answer = async (orchestrator: Orchestrator, model: string): Promise<string> => (await orchestrator.generate(model, 'x').result()).text;

/** What is told of the state, as it comes. */
function newsOf(orchestrator: Orchestrator): readonly string[] {
  const news: string[] = [];
  void (async () => {
    for await (const { name, data } of orchestrator.events()) if (name.startsWith('state_')) news.push(`${name} ${String(data['what'])}`);
  })();
  return news;
}

async function attached(stateFolder: string): Promise<string> {
  const other = await createOrchestrator({ stateFolder, broker: 'attach', models });
  try {
    return await answer(other, 'a');
  } finally {
    await other.close();
  }
}

/** A keeper over files of its own, that looks when it is told. */
async function kept(t: Test, given: Partial<KeeperOptions> = {}) {
  const state = openStateFolder(join(folder(t), 'state'));
  const lock = lockFile(state.lockPath);
  const connections: ByteStream[] = [];
  const listener = await listen({ path: state.socketPath, onConnection: (stream) => { connections.push(stream); } });
  const news: string[] = [];
  const ends: string[] = [];
  const keeper = new Keeper({
    state, lock, cardLocks: [], listener, records: [], everyMs: anHourMs, log: silentLog,
    publish: (name, { what, code }) => { news.push([name, what, code].filter((part) => typeof part === 'string').join(' ')); },
    onOutlived: (error) => { ends.push(error.message); },
    ...given,
  });
  t.teardown(async () => {
    keeper.stop();
    await listener.close();
    lock.release();
  });
  return { state, lock, listener, keeper, news, ends, connections };
}

t.test('what is taken from a running broker is put back: new workers start, others attach, nobody starts beside it', async (t) => {
  const losses: readonly { readonly what: string; readonly take: (path: string) => void; readonly told: readonly string[] }[] = [
    { what: 'the socket', take: (path) => { rmSync(join(path, 'broker.sock')); }, told: ['socket'] },
    { what: 'the secret', take: (path) => { rmSync(join(path, 'secret')); }, told: ['secret'] },
    { what: 'the lock', take: (path) => { rmSync(join(path, 'broker.lock')); }, told: ['lock'] },
    { what: 'all files', take: (path) => { for (const name of ['broker.sock', 'secret', 'broker.lock']) rmSync(join(path, name)); }, told: ['lock', 'secret', 'socket'] },
    // In one step: workers put their sockets back, too.
    { what: 'the folder', take: (path) => { renameSync(path, `${path}-gone`); rmSync(`${path}-gone`, { recursive: true }); }, told: ['folder', 'lock', 'records', 'records', 'secret', 'socket'] },
    { what: 'the folder, by another name', take: (path) => { renameSync(path, `${path}-moved`); }, told: ['folder', 'lock', 'records', 'records', 'secret', 'socket'] },
    { what: 'the records', take: (path) => { for (const name of ['processes', 'simulated']) rmSync(join(path, name), { recursive: true }); }, told: ['records', 'records'] },
    { what: 'a secret that is another’s', take: (path) => { writeFileSync(join(path, 'secret'), `${'b'.repeat(64)}\n`); }, told: ['secret'] },
    { what: 'a secret that is none', take: (path) => { writeFileSync(join(path, 'secret'), 'x'.repeat(100_000)); }, told: ['secret'] },
  ];
  for (const { what, take, told } of losses) {
    await t.test(what, async (t) => {
      const stateFolder = join(folder(t), 'state');
      const orchestrator = await open(t, { stateFolder, models, limits: { stateCheckMs: 50 } });
      const news = newsOf(orchestrator);
      t.equal(await answer(orchestrator, 'a'), 'hello');
      const before = readStateFolder(stateFolder);
      take(stateFolder);
      await until('the news of it', () => news.length >= told.length);
      t.strictSame(news, told.map((part) => `state_restored ${part}`));
      t.strictSame(readStateFolder(stateFolder), before, 'the same secret');
      t.strictSame(['', 'secret', 'broker.lock', 'broker.sock'].map((name) => statSync(join(stateFolder, name)).mode & 0o777), [0o700, 0o600, 0o600, 0o600]);
      t.equal(await answer(orchestrator, 'b'), 'hello', 'a worker is started');
      t.equal(await attached(stateFolder), 'hello', 'another process attaches');
      t.match(await refusal(createOrchestrator({ stateFolder, broker: 'own', devices: ['sim:1MiB'] })), { code: 'broker_running' });
    });
  }
});

t.test('before a worker is started its broker looks, however seldom it does else', async (t) => {
  const stateFolder = join(folder(t), 'state');
  const orchestrator = await open(t, { stateFolder, models, limits: { stateCheckMs: anHourMs } });
  t.equal(await answer(orchestrator, 'a'), 'hello');
  for (const model of ['b', 'c']) {
    rmSync(stateFolder, { recursive: true });
    t.equal(await answer(orchestrator, model), 'hello');
  }
});

t.test('who is connected stays so, and is heard; whoever comes finds the new socket', async (t) => {
  const { state, listener, keeper, connections } = await kept(t);
  const early = await connect({ path: state.socketPath, timeoutMs: 10_000 });
  await until('the connection', () => connections.length === 1);
  const heard: string[] = [];
  connections[0]?.onData((chunk) => { heard.push(Buffer.from(chunk).toString()); });
  for (let turn = 0; turn < 3; turn++) {
    rmSync(state.socketPath);
    t.equal(listener.place, 'missing');
    await keeper.look();
    t.equal(listener.place, 'own');
  }
  const late = await connect({ path: state.socketPath, timeoutMs: 10_000 });
  early.write(Buffer.from('still here'));
  await until('what was said', () => heard.join('') === 'still here' && connections.length === 2);
  early.destroy();
  late.destroy();
  await listener.close();
  t.notOk(existsSync(state.socketPath), 'and goes with it');
});

t.test('what somebody laid in their place is told once, is neither followed nor overwritten, and is no reason to end', async (t) => {
  const victim = join(folder(t), 'victim');
  const impostors: readonly { readonly name: string; readonly lay: (path: string) => void; readonly still: (path: string) => boolean }[] = [
    { name: 'a link', lay: (path) => { writeFileSync(victim, 'precious'); symlinkSync(victim, path); }, still: (path) => readlinkSync(path) === victim && readFileSync(victim, 'utf8') === 'precious' },
    { name: 'a link to nothing', lay: (path) => { symlinkSync(`${path}.nowhere`, path); }, still: (path) => !existsSync(`${path}.nowhere`) && lstatSync(path).isSymbolicLink() },
    { name: 'a folder', lay: (path) => { mkdirSync(path); }, still: (path) => statSync(path).isDirectory() },
    ...(process.getuid?.() === 0 ? [{ name: 'a file of another user', lay: (path: string) => { writeFileSync(path, 'theirs'); chownSync(path, 12_345, 12_345); }, still: (path: string) => statSync(path).uid === 12_345 && readFileSync(path, 'utf8') === 'theirs' }] : []),
  ];
  const places = [['secretPath', 'secret', 'config_unreadable'], ['lockPath', 'lock', 'config_unreadable'], ['socketPath', 'socket', 'socket_in_use']] as const;
  for (const { name, lay, still } of impostors) {
    for (const [place, what, code] of places) {
      const { state, keeper, news, ends } = await kept(t);
      const path = state[place];
      rmSync(path);
      lay(path);
      await keeper.look();
      await keeper.look();
      t.strictSame([news, still(path), ends], [[`state_lost ${what} ${code}`], true, []], `${name} for the ${what}`);
      rmSync(path, { recursive: true });
      await keeper.look();
      t.strictSame(news.slice(1), [`state_restored ${what}`], `and put back when ${name} is gone`);
    }
  }
});

t.test('a folder is not made where it could be taken away again, nor a link to one trusted', async (t) => {
  const { state, keeper, news } = await kept(t);
  const above = dirname(state.path);
  const elsewhere = folder(t);
  rmSync(state.path, { recursive: true });
  symlinkSync(elsewhere, state.path);
  await keeper.look();
  t.strictSame([news, lstatSync(state.path).isSymbolicLink()], [['state_lost folder config_unreadable'], true]);
  rmSync(state.path);
  if (process.getuid?.() === 0) {
    chownSync(above, 12_345, 12_345);
    chmodSync(above, 0o777);
    await keeper.look();
    t.strictSame([news.slice(1), existsSync(state.path)], [['state_lost folder config_unreadable'], false]);
    chownSync(above, 0, 0);
  }
  await keeper.look();
  t.strictSame(news.slice(-4), ['folder', 'lock', 'secret', 'socket'].map((what) => `state_restored ${what}`));
});

t.test('without its lock a broker puts nothing else back; one that only tries to start costs it nothing', async (t) => {
  const { state, keeper, news, ends, listener } = await kept(t);
  for (const path of [state.lockPath, state.secretPath]) rmSync(path);
  const other = lockFile(state.lockPath);
  await keeper.look();
  t.strictSame([news, ends, existsSync(state.secretPath)], [['state_lost lock broker_running'], [], false]);
  rmSync(state.socketPath);
  await keeper.look();
  t.strictSame([ends, listener.place], [[], 'missing'], 'the other may still fail to start');
  other.release();
  await keeper.look();
  t.strictSame(news.slice(1), ['state_restored lock', 'state_restored secret', 'state_restored socket']);
  t.match(thrown(() => lockFile(state.lockPath)), { code: 'broker_running' });
});

t.test('a broker in whose place another answers ends, typed, and leaves that one all that is its own', async (t) => {
  const stateFolder = join(folder(t), 'state');
  const first = await createOrchestrator({ stateFolder, broker: 'own', devices: ['sim:64MiB'], models, limits: { stateCheckMs: anHourMs } });
  t.teardown(() => first.close());
  t.equal(await answer(first, 'a'), 'hello');
  for (const name of ['broker.sock', 'broker.lock']) rmSync(join(stateFolder, name));
  const second = await createBroker({ stateFolder, engines: [], discover: async () => [] });
  t.teardown(() => second.close());
  // It looks before it starts a worker, which then has nowhere to come.
  await refusal(answer(first, 'b'));
  t.ok(await until('a new one of its own to be refused', () => first.ledger().then(() => null, (error: unknown) => error instanceof LeaseholdError && error.code === 'broker_running')), 'it cannot start');
  const client = await peer(stateFolder, 'client');
  t.ok(client.generation.startsWith(second.bootId));
  t.match(thrown(() => lockFile(join(stateFolder, 'broker.lock'))), { code: 'broker_running' });
  client.channel.end();
});

t.test('what is told to the one that ends', async (t) => {
  const { state, keeper, news, ends } = await kept(t);
  for (const path of [state.socketPath, state.lockPath]) rmSync(path);
  const other = await createBroker({ stateFolder: state.path, engines: [], discover: async () => [] });
  t.teardown(() => other.close());
  await keeper.look();
  t.strictSame(news, ['state_lost lock broker_running']);
  t.match(ends, [/another broker has taken its place: A broker runs already \(pid \d+.*broker\.lock/]);
});

t.test('a worker puts its own socket back: who comes later is served by the same process', async (t) => {
  const stateFolder = join(folder(t), 'state');
  const orchestrator = await open(t, { stateFolder, models, limits: { stateCheckMs: 50 } });
  t.equal(await answer(orchestrator, 'a'), 'hello');
  const pid = await workerPid(orchestrator, 'a');
  const [socket] = socketsIn(stateFolder).filter((name) => name !== 'broker.sock');
  const path = join(stateFolder, socket ?? '');
  rmSync(path);
  await until('its socket', () => existsSync(path));
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(await attached(stateFolder), 'hello');
  t.equal(await workerPid(orchestrator, 'a'), pid);
});

t.test('the lock of a card is kept as well; whose card another has taken ends, once that is no passing attempt', async (t) => {
  const cards = join(folder(t), 'cards');
  mkdirSync(cards, { mode: 0o700 });
  const card = lockFile(join(cards, 'GPU-1.lock'));
  t.teardown(() => { card.release(); });
  const { keeper, news, ends } = await kept(t, { cardLocks: [card] });
  rmSync(cards, { recursive: true });
  await keeper.look();
  t.strictSame(news, ['state_restored folder', 'state_restored lock']);
  t.match(thrown(() => lockFile(card.path)), { code: 'broker_running' });
  rmSync(card.path);
  const passing = lockFile(card.path);
  await keeper.look();
  passing.release();
  await keeper.look();
  t.strictSame([news.slice(2), ends], [['state_lost lock broker_running', 'state_restored lock'], []]);
  rmSync(card.path);
  const staying = lockFile(card.path);
  t.teardown(() => { staying.release(); });
  await until('the end', async () => {
    await keeper.look();
    return ends[0];
  });
  t.match(ends[0], /another broker has taken a card of it: A broker runs already \(pid .*GPU-1\.lock/);
});

t.test('who is refused the lock leaves no secret that its owner does not know', async (t) => {
  const stateFolder = join(folder(t), 'state');
  await open(t, { stateFolder, models, limits: { stateCheckMs: anHourMs } });
  rmSync(join(stateFolder, 'secret'));
  t.match(await refusal(createOrchestrator({ stateFolder, broker: 'own', devices: ['sim:1MiB'] })), { code: 'broker_running' });
  t.notOk(existsSync(join(stateFolder, 'secret')));
});

t.test('all that is ours is kept young, and a link is not followed', async (t) => {
  const { state, keeper } = await kept(t);
  const other = join(folder(t), 'other');
  writeFileSync(other, '');
  symlinkSync(other, join(state.path, 'link'));
  writeFileSync(join(state.path, 'record.json'), '{}');
  const paths = [state.secretPath, state.lockPath, state.socketPath, join(state.path, 'record.json'), state.path, other];
  const old = new Date('2020-01-01');
  for (const path of paths) utimesSync(path, old, old);
  await keeper.look();
  t.strictSame(paths.map((path) => statSync(path).mtimeMs > old.getTime()), [true, true, true, true, true, false]);
});
