// Many who stage at once, those who died of it, and other programs that have the bytes already.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, linkSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join, relative } from 'node:path';
import t from 'tap';
import { Models } from '../../src/models/models.js';
import { donorFolders, type DonorFolders } from '../../src/models/staging/donors.js';
import { newHolder } from '../../src/models/staging/identity.js';
import { withLock } from '../../src/models/staging/lock.js';
import { Partials } from '../../src/models/staging/partials.js';
import { fileWithin } from '../../src/models/store/files.js';
import { storeRoot } from '../../src/models/store/layout.js';
import { sha256 } from './hub/server.js';
import { leavePartial, noDonors, stagerPath, temporary, scene, oneFile, partialsOf, type Scene } from './hub/scene.js';

/** Stages o/m in a process of its own. */
async function stageElsewhere(here: Scene): Promise<{ readonly downloaded?: boolean; readonly error?: unknown }> {
  const child = spawn(process.execPath, [stagerPath, 'o/m', here.root], { env: { ...process.env, HF_ENDPOINT: here.hub.endpoint }, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.on('data', (text: Buffer) => { said += text.toString(); });
  await once(child, 'close');
  return JSON.parse(said) as { readonly downloaded?: boolean };
}

t.test('B146: two processes that stage the same without a lock never write into one file', async (t) => {
  const here = await scene(t);
  const { files, content } = oneFile(400_000);
  here.hub.publish('o/m', files);
  // The lock is taken away as soon as it is made: it is a no-op.
  const { layout } = here.models.store;
  const lock = layout.lock({ repository: 'o/m', commit: here.hub.repositories.get('o/m')!.refs.get('main')! });
  let waiting = 0;
  const both = new Promise<void>((resolve) => {
    here.hub.fault(/GET \/blobs/, async ({ request }) => {
      if (request.range !== null) return false;
      rmSync(lock, { force: true });
      if (++waiting === 2) resolve();
      await both;
      return false;
    }, Infinity);
  });
  const results = await Promise.all([stageElsewhere(here), stageElsewhere(here)]);
  t.equal(waiting, 2, 'both downloaded');
  t.strictSame(results.map(({ downloaded }) => downloaded), [true, true]);
  t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), content);
  t.strictSame(partialsOf(here, 'o/m'), []);
});

t.test('B154: the store has one absolute root and no links of its own', async (t) => {
  const folder = temporary(t);
  t.equal(storeRoot({ LEASEHOLD_MODELS: 'models' }, folder), join(folder, 'models'));
  t.equal(storeRoot({ XDG_DATA_HOME: '/data' }), '/data/leasehold/models');
  const here = await scene(t);
  here.hub.publish('o/m', oneFile().files);
  const before = process.cwd();
  process.chdir(dirname(here.root));
  t.teardown(() => { process.chdir(before); });
  const models = new Models({ env: { HF_ENDPOINT: here.hub.endpoint, LEASEHOLD_MODELS: 'store' }, donors: noDonors });
  t.teardown(() => models.close());
  process.chdir('/');
  const { path } = await models.pull('o/m');
  t.equal(path, here.folder('o/m'));
  t.ok(statSync(join(path, 'x-Q8_0.gguf')).isFile());
});

t.test('B154: a file that may not be linked is copied, and one that both link at once is there once', async (t) => {
  const { files, content, hash } = oneFile(300_000);
  const { link } = fs;
  t.teardown(() => {
    fs.link = link;
    syncBuiltinESMExports();
  });
  const cached = (): string => {
    const cache = temporary(t);
    mkdirSync(join(cache, 'blobs'));
    writeFileSync(join(cache, 'blobs', `sha256-${hash}`), content);
    return cache;
  };
  for (const code of ['EPERM', 'EXDEV', 'ENOTSUP']) {
    fs.link = () => Promise.reject(Object.assign(new Error(code), { code }));
    syncBuiltinESMExports();
    const cache = cached();
    const here = await scene(t, { donors: { ...noDonors, ollama: [cache] } });
    here.hub.publish('o/m', files);
    t.match(await here.pull('o/m'), { downloaded: false, reusedBytes: content.length }, code);
    const path = join(here.folder('o/m'), 'x-Q8_0.gguf');
    t.strictSame(readFileSync(path), content);
    t.equal(statSync(path).nlink, 1, 'a file of its own');
    t.strictSame([here.fetched(), partialsOf(here, 'o/m')], [[], []]);
  }
  fs.link = link;
  syncBuiltinESMExports();
  const here = await scene(t, { donors: { ...noDonors, ollama: [cached()] } });
  here.hub.publish('o/m', files);
  const second = new Models({ env: { HF_ENDPOINT: here.hub.endpoint }, root: here.root, donors: { ...noDonors, ollama: [cached()] } });
  t.teardown(() => second.close());
  t.match(await Promise.all([here.pull('o/m'), second.pull('o/m')]), [{ downloaded: false }, { downloaded: false }]);
  const path = join(here.folder('o/m'), 'x-Q8_0.gguf');
  t.equal(statSync(path).nlink, 2, 'linked');
  t.strictSame([readFileSync(path), here.fetched(), partialsOf(here, 'o/m')], [content, [], []]);
});

t.test('what a dead process had linked from another program is not continued: it is that program’s', async (t) => {
  const { files, content, hash } = oneFile(3_000);
  const donor = join(temporary(t), 'theirs');
  const theirs = Buffer.alloc(content.length, 5);
  writeFileSync(donor, theirs);
  const here = await scene(t);
  here.hub.publish('o/m', files);
  leavePartial(here.root, here.models, 'o/m', hash, Buffer.alloc(0));
  const [name = ''] = partialsOf(here, 'o/m');
  const partial = join(here.models.store.layout.partials('o/m'), name);
  rmSync(partial);
  linkSync(donor, partial);
  await here.pull('o/m');
  t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), content);
  t.strictSame(readFileSync(donor), theirs, 'nothing was written into it');
  t.notOk(existsSync(partial));
});

t.test('B208: links in a cache count for what they lead to, and only inside it', async (t) => {
  const cache = temporary(t);
  const outside = temporary(t);
  const { files, content, hash } = oneFile();
  const here = await scene(t, { donors: { ...noDonors, hub: [cache] } });
  const commit = here.hub.publish('o/m', files);
  const snapshot = join(cache, 'models--o--m', 'snapshots', commit);
  mkdirSync(snapshot, { recursive: true });
  mkdirSync(join(cache, 'models--o--m', 'blobs'));
  const link = join(snapshot, 'x-Q8_0.gguf');
  symlinkSync(join('..', '..', 'blobs', 'nothing'), link);
  t.equal(await fileWithin(cache, link), null, 'one that dangles is missing');
  rmSync(link);
  writeFileSync(join(outside, 'x'), content);
  symlinkSync(relative(snapshot, join(outside, 'x')), link);
  await t.rejects(fileWithin(cache, link), { code: 'link_refused' });
  t.match(await here.pull('o/m'), { downloaded: true, reusedBytes: 0, refused: [/leads out of/] }, 'one that leads out is not followed');
  rmSync(link);
  rmSync(here.root, { recursive: true });
  writeFileSync(join(cache, 'models--o--m', 'blobs', 'named-otherwise'), content);
  symlinkSync(join('..', '..', 'blobs', 'named-otherwise'), link);
  t.match(await fileWithin(cache, link), { sizeBytes: content.length });
  t.match(await here.pull('o/m'), { downloaded: false, reusedBytes: content.length, refused: [] });
  t.equal(hash, sha256(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf'))));
});

t.test('what other programs have downloaded is used instead of a download, read and never written', async (t) => {
  const { files, content, hash } = oneFile();
  const places: readonly (readonly [keyof DonorFolders, string])[] = [['hub', `models--o--m/blobs/${hash}`], ['llama', 'o_m_x-Q8_0.gguf'], ['ollama', `blobs/sha256-${hash}`]];
  for (const [program, path] of places) {
    const cache = temporary(t);
    const here = await scene(t, { donors: { ...noDonors, [program]: [cache] } });
    here.hub.publish('o/m', files);
    mkdirSync(dirname(join(cache, path)), { recursive: true });
    writeFileSync(join(cache, path), content);
    chmodSync(dirname(join(cache, path)), 0o555);
    t.teardown(() => { chmodSync(dirname(join(cache, path)), 0o755); });
    t.match(await here.pull('o/m'), { downloaded: false, reusedBytes: content.length }, program);
    t.strictSame(here.fetched(), []);
    t.strictSame(readdirSync(dirname(join(cache, path))), [path.split('/').at(-1)]);
  }
  t.test('unless it is not what it should be', async (t) => {
    const cache = temporary(t);
    const here = await scene(t, { donors: { ...noDonors, ollama: [cache] } });
    here.hub.publish('o/m', files);
    mkdirSync(join(cache, 'blobs'));
    writeFileSync(join(cache, 'blobs', `sha256-${hash}`), Buffer.alloc(content.length));
    t.match(await here.pull('o/m'), { downloaded: true, reusedBytes: 0 });
    t.strictSame(readFileSync(join(cache, 'blobs', `sha256-${hash}`)), Buffer.alloc(content.length), 'it stays as it was');
  });
  t.match(donorFolders({ HF_HOME: '/hf', LLAMA_CACHE: '/l', OLLAMA_MODELS: '/o' }), { hub: ['/hf/hub'], llama: ['/l'], ollama: ['/o'] });
  t.match(donorFolders({}, '/home/x'), { hub: ['/home/x/.cache/huggingface/hub'], llama: ['/home/x/.cache/llama.cpp'], ollama: ['/home/x/.ollama/models'] });
});

t.test('R171: a lock of the dead is taken over, one of the living never, and only the owner gives it back', async (t) => {
  const folder = temporary(t);
  const path = join(folder, '.lock');
  const limits = { stageLockWaitMs: 400, stageHeartbeatMs: 20, stageHolderSilentMs: 100 };
  const taken = (): Promise<string> => withLock({ path, repository: 'o/m', limits }, async () => 'held');
  const own = newHolder();
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
  t.teardown(() => { child.kill('SIGKILL'); });
  await once(child, 'spawn');
  writeFileSync(path, JSON.stringify({ ...own, token: 'x', pid: child.pid, startTime: null }));
  utimesSync(path, 0, 0);
  await t.rejects(taken(), { code: 'stage_lock_timeout', message: new RegExp(`process ${String(child.pid)} has been staging o/m`) }, 'however long it has been silent');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(await taken(), 'held', 'dead: at once');
  writeFileSync(path, JSON.stringify({ ...own, token: 'y', startTime: '1' }));
  t.equal(await taken(), 'held', 'another process has its number now');
  writeFileSync(path, JSON.stringify({ ...own, token: 'z', machine: 'elsewhere' }));
  t.equal(await taken(), 'held', 'of another machine, and silent');
  writeFileSync(path, '');
  t.equal(await taken(), 'held', 'its holder died before it wrote its name');
  writeFileSync(path, JSON.stringify({ ...own, token: 'w', machine: 'elsewhere' }));
  const beats = setInterval(() => { utimesSync(path, new Date(), new Date()); }, 20);
  t.teardown(() => { clearInterval(beats); });
  await t.rejects(taken(), { code: 'stage_lock_timeout' }, 'of another machine, and it gives signs of life');
  clearInterval(beats);
  rmSync(path);
  await withLock({ path, repository: 'o/m', limits }, async () => { writeFileSync(path, JSON.stringify({ ...own, token: 'successor' })); });
  t.match(readFileSync(path, 'utf8'), /successor/, 'who lost it leaves it alone');
  t.strictSame(readdirSync(folder), ['.lock']);
});

t.test('one download serves many askers in many processes', async (t) => {
  const here = await scene(t);
  const { files, hash } = oneFile(2_000_000);
  here.hub.publish('o/m', files);
  const results = await Promise.all([stageElsewhere(here), stageElsewhere(here), stageElsewhere(here), here.pull('o/m'), here.pull('o/m')]);
  t.equal(results.filter(({ downloaded }) => downloaded).length, 1);
  t.equal(here.fetched().filter((each) => each === hash.slice(0, 8)).length, 1);
});

t.test('partial files of the living are nobody else\'s', async (t) => {
  const folder = temporary(t);
  const partials = new Partials(folder, 60_000);
  const hex = 'a'.repeat(64);
  const [one, other] = [await partials.claim(hex), await partials.claim(hex)];
  t.not(one.path, other.path);
  writeFileSync(one.path, 'abc');
  t.equal(await partials.leftBytes(hex), 0);
  await partials.leave(one.path, hex);
  t.equal(await partials.leftBytes(hex), 3);
  t.match(await partials.claim(hex), { sizeBytes: 3 });
  await partials.sweep(new Set());
  t.equal(readdirSync(folder).length, 2, 'what lives is not swept');
  const foreign = join(folder, `${hex}.elsewhere.7.1.${'1'.repeat(16)}.part`);
  writeFileSync(foreign, 'x');
  await partials.sweep(new Set());
  t.ok(existsSync(foreign), 'nor what grew on another machine just now');
  utimesSync(foreign, 0, 0);
  await partials.sweep(new Set());
  t.notOk(existsSync(foreign));
});
