// Staging from a hub that misbehaves, onto disks and beside processes that do: what is there in the end is right, or there is an error that says why.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs, { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import t from 'tap';
import { LeaseholdError, defaultLimits } from '../../protocol/index.js';
import { realPauses } from '../../src/models/hub/patience.js';
import { sealed } from '../../src/models/profile/seal.js';
import { withLock } from '../../src/models/staging/lock.js';
import type { StagingProgress } from '../../src/models/staging/progress.js';
import type { Marker } from '../../src/models/store/marker.js';
import * as faults from './hub/faults.js';
import { gguf, safetensors, transformersModel } from './hub/models.js';
import { gitSha1, large, sha256, small, type Fault } from './hub/server.js';
import { temporary, scene, oneFile, leavePartial, partialsOf } from './hub/scene.js';

t.test('a model is staged: every file, whole, hashed, and a marker that says so last', async (t) => {
  const here = await scene(t);
  const files = transformersModel({ shards: { 'a.safetensors': { x: 64 }, 'b.safetensors': { y: 64 } }, more: [small('chat_template.jinja', 'x'), small('evil.py', 'x'), large('other.bin', Buffer.alloc(9))] });
  const commit = here.hub.publish('o/m', files);
  const told: StagingProgress[] = [];
  const pulled = await here.pull('o/m', { onProgress: (progress) => { told.push(progress); } });
  t.match(pulled, { reference: 'o/m', downloaded: true, manifestCreated: true, securityScanComplete: true, path: here.folder('o/m') });
  t.equal(here.folder('o/m'), join(here.root, 'llm_models', `repo-${createHash('sha256').update('o/m').digest('hex')}`, commit), 'R165');
  const staged = ['a.safetensors', 'b.safetensors', 'chat_template.jinja', 'config.json', 'model.safetensors.index.json', 'tokenizer.json'];
  t.strictSame(readdirSync(pulled.path).sort(), ['.leasehold-complete.json', ...staged], 'no code, no pickles');
  for (const path of staged) t.strictSame(readFileSync(join(pulled.path, path)), files.find((file) => file.path === path)?.bytes);
  const marker = JSON.parse(readFileSync(join(pulled.path, '.leasehold-complete.json'), 'utf8')) as Marker;
  t.strictSame(marker.files.map(({ path }) => path).sort(), staged);
  t.match(marker, { marker_version: 2, repository: 'o/m', revision: commit, profiles: { [pulled.profile.id]: Array } });
  t.equal(marker.files.find(({ path }) => path === 'config.json')?.git_sha1, gitSha1(files[0]!.bytes));
  t.strictSame(JSON.parse(readFileSync(pulled.manifestPath, 'utf8')), sealed({
    schema_version: 2, compatibility_policy_version: 1, requested_reference: 'o/m', resolved_at_unix: marker.completed_at_unix, security_scan_complete: true, profile: pulled.profile,
  }), 'R158');
  t.strictSame(partialsOf(here, 'o/m'), []);
  t.match(told.at(-1), { stage: 'download', files: { done: 6, total: 6 }, bytes: { done: pulled.downloadedBytes, total: pulled.downloadedBytes } }, 'R174');

  t.test('a second time it is cached, and says so; another backend of it shares the files', async (t) => {
    here.fetched();
    told.length = 0;
    t.match(await here.pull('o/m', { onProgress: (progress) => { told.push(progress); } }), { downloaded: false, manifestCreated: false, downloadedBytes: 0 });
    t.match(told.at(-1), { stage: 'cached', files: { done: 1, total: 1 } });
    const other = await here.pull('o/m', { backend: 'vllm' });
    t.match(other, { downloaded: false, manifestCreated: true, path: pulled.path });
    t.not(other.profile.id, pulled.profile.id);
    t.strictSame(here.fetched(), []);
    t.equal((await here.models.list()).length, 2);
  });

  t.test('R180: it is listed, checked and removed, and what another profile needs stays', async (t) => {
    const [one, other] = await here.models.list();
    const { signal } = new AbortController();
    t.ok((await here.models.verify(one!, signal)).every(({ fault }) => fault === null));
    await t.rejects(here.models.remove(one!, ['worker 7 of the broker'], signal), { code: 'model_in_use', message: /worker 7/ });
    await withLock({ path: here.models.store.layout.lock({ repository: 'o/m', commit }), repository: 'o/m', limits: defaultLimits }, async () => {
      await t.rejects(here.models.remove(one!, [], signal), { code: 'model_in_use', message: /process/ });
    });
    t.equal(await here.models.remove(one!, [], signal), 0);
    t.ok(existsSync(join(pulled.path, 'a.safetensors')));
    const [lost] = marker.files;
    rmSync(join(pulled.path, lost!.path));
    t.equal(await here.models.remove(other!, [], signal), marker.files.reduce((sum, file) => sum + file.size_bytes, -lost!.size_bytes), 'what was gone before frees nothing');
    t.notOk(existsSync(pulled.path));
    t.strictSame(await here.models.list(), []);
    await t.rejects(here.models.find('o/m'), { code: 'profile_unknown' });
  });
});

t.test('B142: a branch that moves between two files moves nothing, and each repository has a commit of its own', async (t) => {
  const here = await scene(t);
  const versions = [1, 2].map((version) => ['a.safetensors', 'b.safetensors'].map((path, index) => large(path, safetensors({ [`t.${String(index)}`]: 64 }, 10 * version + index))));
  const index = small('model.safetensors.index.json', JSON.stringify({ weight_map: { 't.0': 'a.safetensors', 't.1': 'b.safetensors' } }));
  const files = versions.map((shards) => [...transformersModel({ shards: {} }), index, ...shards]);
  const first = here.hub.publish('o/m', files[0]!);
  const other = here.hub.publish('o/n', oneFile().files);
  let second = '';
  here.hub.fault(/GET \/o\/m\/resolve\/.*safetensors$/, ({ request }) => {
    if (request.range === null) second = here.hub.publish('o/m', files[1]!);
    return false;
  }, Infinity);
  const [{ path, profile }, { profile: beside }] = await Promise.all([here.pull('o/m'), here.pull('o/n')]);
  t.not(second, '');
  t.strictSame([profile.revision, beside.revision], [first, other]);
  for (const { path: file, bytes } of versions[0]!) t.strictSame(readFileSync(join(path, file)), bytes, `${file} is of the commit that was resolved`);
  for (const { path: url, storage } of here.hub.requests.filter((request) => !request.path.startsWith('/api/'))) {
    if (!storage) t.match(url, url.startsWith('/o/m/') ? `/o/m/resolve/${first}/` : `/o/n/resolve/${other}/`);
  }
});

t.test('B143: a commit that goes away while it is downloaded is resolved once more, and then it is an error', async (t) => {
  const here = await scene(t);
  here.hub.publish('o/m', oneFile().files);
  here.hub.fault(/resolve.*gguf/, ({ request }) => {
    // The header could still be read.
    if (request.range !== null) return false;
    here.hub.publish('o/m', [large('x-Q8_0.gguf', gguf({}, 9))]);
    here.hub.repositories.get('o/m')!.commits.delete(request.path.split('/')[4]!);
    return false;
  }, 2);
  t.match((await here.pull('o/m')).profile, { revision: here.hub.repositories.get('o/m')!.refs.get('main') });
  here.hub.publish('o/n', oneFile().files);
  here.hub.fault(/o\/n\/resolve.*gguf/, ({ request, response }) => request.range === null && faults.status(404, {}, 'EntryNotFound')({ request, response, file: null }), Infinity);
  t.match(await here.refused('o/n'), { code: 'commit_gone', message: /x-Q8_0\.gguf is not there, and resolving again gave the same commit/ });
  t.notOk(here.hub.requests.some(({ path }) => path.includes('/resolve/main/')));
});

// A file of 3,000 bytes is hashed as it comes, one of 36 MiB by a thread of its own.
for (const size of [3_000, 36 * 1024 ** 2]) t.test(`B145: a transfer of ${String(size)} bytes is continued only by a server that proves that it continues these bytes`, async (t) => {
  const { files, content, hash } = oneFile(size);
  const third = size / 3;
  const [all, last, more] = [size, size - 1, size + third].map(String) as [string, string, string];
  const [half, rest] = [String(third / 2), `bytes=${String(third)}-`];
  const other = Buffer.from(content).fill(0);
  type Answer = Parameters<typeof faults.answersRange>[0];
  const cases: readonly (readonly [string, Answer, readonly string[]])[] = [
    ['206 with the rest', (bytes, start) => ({ status: 206, contentRange: `bytes ${String(start)}-${last}/${all}`, body: bytes.subarray(start) }), [rest]],
    ['200 and the whole file', (bytes) => ({ status: 200, body: bytes }), [rest]],
    ['200 with a Content-Range', (bytes, start) => ({ status: 200, contentRange: `bytes ${String(start)}-${last}/${all}`, body: bytes.subarray(start) }), [rest]],
    ['200 with a Content-Range of another size', (bytes, start) => ({ status: 200, contentRange: `bytes ${String(start)}-${String(size + third - 1)}/${more}`, body: bytes.subarray(start) }), [rest, '']],
    ['206 from another place', (bytes) => ({ status: 206, contentRange: `bytes ${half}-${last}/${all}`, body: bytes.subarray(third / 2) }), [rest, '']],
    ['206 of another size', (bytes, start) => ({ status: 206, contentRange: `bytes ${String(start)}-${String(size + third - 1)}/${more}`, body: bytes.subarray(start) }), [rest, '']],
    ['206 of an inverted range', () => ({ status: 206, contentRange: `bytes ${last}-${String(third)}/${all}`, body: other.subarray(third) }), [rest, '']],
    ['206 without a range', () => ({ status: 206, body: other.subarray(third) }), [rest, '']],
    ['206 that does not know the whole', (bytes, start) => ({ status: 206, contentRange: `bytes ${String(start)}-${last}/*`, body: bytes.subarray(start) }), [rest, '']],
    ['206 of a part of what was asked for', (bytes, start) => ({ status: 206, contentRange: `bytes ${String(start)}-${String(Math.min(start + third, size) - 1)}/${all}`, body: bytes.subarray(start, start + third) }), [rest, `bytes=${String(2 * third)}-`]],
    ['416', () => ({ status: 416, contentRange: `bytes */${all}`, body: Buffer.alloc(0) }), [rest, '']],
  ];
  for (const [what, answer, asked] of cases) {
    const here = await scene(t);
    here.hub.publish('o/m', files);
    leavePartial(here.root, here.models, 'o/m', hash, content.subarray(0, third));
    here.hub.fault(/GET \/blobs/, (delivery) => delivery.request.range?.endsWith('-') === true && faults.answersRange(answer)(delivery), Infinity);
    await here.pull('o/m');
    t.strictSame(here.fetched(), asked.map((range) => `${hash.slice(0, 8)}${range === '' ? '' : ` ${range}`}`), what);
    t.ok(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')).equals(content), what);
  }
  t.test('what is whole already is known by its hash, without a request; what is too long, or begins otherwise, is not believed', async (t) => {
    for (const [beginning, asked] of [[content, []], [Buffer.concat([content, content]), ['']], [other, ['']], [other.subarray(0, third), [rest, '']]] as const) {
      const here = await scene(t);
      here.hub.publish('o/m', files);
      leavePartial(here.root, here.models, 'o/m', hash, beginning);
      await here.pull('o/m');
      t.strictSame(here.fetched(), asked.map((range: string) => `${hash.slice(0, 8)}${range === '' ? '' : ` ${range}`}`));
      t.ok(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')).equals(content));
    }
  });
});

t.test('B148: files of the right length with a tail of zeros, and files that are short, are found and they alone fetched again', async (t) => {
  const here = await scene(t);
  const shards = { 'a.safetensors': { x: 4_096 }, 'b.safetensors': { y: 4_096 }, 'c.safetensors': { z: 4_096 } };
  here.hub.publish('o/m', transformersModel({ shards }));
  const { path, profile } = await here.pull('o/m');
  const bytes = readFileSync(join(path, 'a.safetensors'));
  const [wholeA, wholeB] = [Buffer.from(bytes), readFileSync(join(path, 'b.safetensors'))];
  writeFileSync(join(path, 'a.safetensors'), Buffer.concat([bytes.subarray(0, 2_000), Buffer.alloc(bytes.length - 2_000)]));
  truncateSync(join(path, 'b.safetensors'), wholeB.length - 1);
  const config = readFileSync(join(path, 'config.json'));
  writeFileSync(join(path, 'config.json'), Buffer.concat([config.subarray(0, -9), Buffer.alloc(9)]));
  t.match((await here.models.find(profile.id)).missing, /b\.safetensors has \d+ bytes instead of/, 'a length is seen at once');
  const { signal } = new AbortController();
  const verdicts = await here.models.verify(await here.models.find(profile.id), signal);
  t.match(verdicts.filter(({ fault }) => fault !== null), [{ path: 'a.safetensors', fault: /its hash is/ }, { path: 'b.safetensors', fault: /bytes instead of/ }, { path: 'config.json', fault: new RegExp(`its hash is [0-9a-f]{40} instead of ${gitSha1(config)}`) }]);
  t.strictSame(['a.safetensors', 'b.safetensors', 'c.safetensors', 'config.json'].map((file) => existsSync(join(path, file))), [false, false, true, false], 'what is wrong is out of the way, and nothing else');
  const quarantine = here.models.store.layout.quarantine('o/m');
  const [keptAt = ''] = verdicts.flatMap(({ path: file, keptAt: at }) => (at === null ? [] : [file === 'config.json' ? at : 'another']));
  t.equal(dirname(keptAt), quarantine);
  t.strictSame(readFileSync(keptAt).subarray(-9), Buffer.alloc(9), 'the last of them is kept as it was, out of the way');
  t.strictSame(readdirSync(quarantine), [basename(keptAt)], 'and one alone');
  await t.rejects(here.models.runnable({ kind: 'hub', repository: 'o/m', revision: null, selection: null }), { code: 'not_staged' }, 'no engine is given it');
  here.fetched();
  t.match(await here.pull('o/m'), { downloaded: true, downloadedBytes: wholeA.length + wholeB.length + config.length });
  t.strictSame(readFileSync(join(path, 'config.json')), config);
  t.strictSame([...here.fetched()].sort(), [wholeA, wholeB].map((each) => sha256(each).slice(0, 8)).sort());
  t.strictSame(readFileSync(join(path, 'a.safetensors')), wholeA);
  t.test('also those of a staging that never came to its end', async (t) => {
    rmSync(join(path, '.leasehold-complete.json'));
    writeFileSync(join(path, 'a.safetensors'), Buffer.alloc(wholeA.length));
    here.fetched();
    const { keptAt: zeros } = await here.pull('o/m');
    t.strictSame(here.fetched(), [sha256(wholeA).slice(0, 8)]);
    t.strictSame(readFileSync(String(zeros)), Buffer.alloc(wholeA.length), 'pull tells where it is kept, too');
    t.strictSame(readdirSync(quarantine), [basename(String(zeros))], 'in the place of the one before');
    t.ok((await here.models.verify(await here.models.find(profile.id), signal)).every(({ fault }) => fault === null));
    await here.models.remove(await here.models.find(profile.id), [], signal);
    t.notOk(existsSync(quarantine), 'it goes with the model');
  });
});

t.test('B149: bodies that are short, long, empty or other bytes are errors with both figures, after three tries', async (t) => {
  const { files, content, hash } = oneFile(3_000);
  const cases: readonly (readonly [string, (bytes: Buffer) => Buffer, RegExp, number])[] = [
    ['a clean end at 43 %', (bytes) => bytes.subarray(0, 1_290), /it has 1290 bytes instead of 3000 bytes/, 1_290],
    ['too many', (bytes) => Buffer.concat([bytes, Buffer.alloc(686)]), /it has at least 3686 bytes instead of 3000 bytes/, 0],
    ['none', () => Buffer.alloc(0), /it has 0 bytes instead of 3000 bytes/, 0],
    ['others', (bytes) => Buffer.alloc(bytes.length, 1), new RegExp(`its hash is [0-9a-f]{64} instead of ${hash}`), 0],
  ];
  for (const [what, make, message, keptBytes] of cases) {
    const here = await scene(t);
    here.hub.publish('o/m', files);
    let sent = 0;
    here.hub.fault(/GET \/blobs/, (delivery) => {
      const { range } = delivery.request;
      if (range !== null && !range.endsWith('-')) return false;
      sent++;
      return faults.sends(make)(delivery);
    }, Infinity);
    t.match(await here.refused('o/m'), { code: 'file_corrupt', message }, what);
    t.equal(sent, 3, `${what}: three tries`);
    const left = partialsOf(here, 'o/m');
    t.strictSame(here.slept, [375, 750], `${what}: with longer and longer pauses`);
    t.strictSame(left.map((name) => readFileSync(join(here.models.store.layout.partials('o/m'), name))), keptBytes === 0 ? [] : [content.subarray(0, keptBytes)], `${what}: only what may be a beginning is kept`);
    t.notOk(existsSync(join(here.folder('o/m'), '.leasehold-complete.json')));
    t.notOk(existsSync(join(here.folder('o/m'), 'x-Q8_0.gguf')));
  }
  t.test('and one that is right at the second try is staged', async (t) => {
    const here = await scene(t);
    here.hub.publish('o/m', files);
    const whole = (fault: Fault) => (delivery: Parameters<Fault>[0]) => delivery.request.range === null && fault(delivery);
    here.hub.fault(/GET \/blobs/, whole(faults.sends((bytes) => Buffer.alloc(bytes.length, 1))), 2);
    await here.pull('o/m');
    t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), content);
  });
});

t.test('R173: what the network does is continued, and in the end told with how far it came', async (t) => {
  const here = await scene(t, { limits: { hubSilentMs: 200 } });
  const { files, content, hash } = oneFile(3_000);
  here.hub.publish('o/m', files);
  const whole = (fault: Fault) => (delivery: Parameters<Fault>[0]) => delivery.request.range === null && fault(delivery);
  here.hub.fault(/GET \/blobs/, whole(faults.resetAfter(1_000)), 2);
  await here.pull('o/m');
  const asked = here.fetched();
  t.equal(asked[0], hash.slice(0, 8));
  t.match(asked.at(-1), / bytes=\d+-$/, 'it went on from where it was');
  t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), content);
  const other = oneFile(4_000);
  here.hub.publish('o/n', other.files);
  here.hub.fault(/GET \/blobs/, whole(faults.stallsAfter(700)), Infinity);
  here.hub.fault(/GET \/blobs/, (delivery) => delivery.request.range?.endsWith('-') === true && faults.reset(delivery), Infinity);
  t.match(await here.refused('o/n'), { code: 'download_failed', retryable: true, message: /x-Q8_0\.gguf of o\/n .*\(700 bytes of .*done\)/ });
  for (const code of [401, 403]) {
    here.hub.publish(`o/x${String(code)}`, files);
    here.hub.requests.length = 0;
    here.hub.fault(new RegExp(`o/x${String(code)}/resolve`), (delivery) => delivery.request.range === null && faults.status(code, {}, '')(delivery), Infinity);
    t.match(await here.refused(`o/x${String(code)}`), { code: 'repository_private' });
    t.equal(here.hub.requests.filter(({ path, range }) => path.includes('/resolve/') && range === null).length, 1, 'never tried again');
  }
});

t.test('B151: what is missing must fit where it will stay; what is complete needs no room', async (t) => {
  const here = await scene(t, { limits: { modelWeightsBytesMax: Number.MAX_SAFE_INTEGER } });
  const { files, hash } = oneFile();
  here.hub.publish('o/m', files);
  const huge = 2 ** 50;
  const listed = { siblings: [{ rfilename: 'x-Q8_0.gguf', size: huge, blobId: 'a'.repeat(40), lfs: { sha256: hash, size: huge, pointerSize: 1 } }] };
  await here.pull('o/m');
  here.hub.fault(/o\/huge\/resolve.*gguf/, ({ request, response }) => {
    const [, from = '', to = ''] = /^bytes=(\d+)-(\d+)$/.exec(request.range ?? '') ?? [];
    const zeros = Buffer.alloc(Number(to) + 1 - gguf().length);
    response.writeHead(206, { 'content-range': `bytes ${from}-${to}/${String(huge)}` }).end(Buffer.concat([gguf(), zeros]).subarray(Number(from)));
    return true;
  }, Infinity);
  here.hub.publish('o/huge', files);
  here.hub.repositories.get('o/huge')!.info = listed;
  const error = await here.refused('o/huge');
  t.match(error, { code: 'disk_full', message: /are missing there/ });
  t.match(error.details, { neededBytes: String(huge), path: here.folder('o/huge') });
  t.notOk(here.hub.requests.some(({ path, range }) => path.includes('o/huge/resolve') && range === null), 'no body was asked for');
  t.match(await here.pull('o/m'), { downloaded: false });
  t.equal(dirname(here.models.store.layout.partials('o/m')), dirname(here.folder('o/m')), 'partial files lie beside where they will stay: no rename crosses a volume');
});

t.test('B151: of a model that is mostly here only the rest must fit, a beginning of it counted; and nothing is needed for one that is whole', async (t) => {
  const here = await scene(t);
  const shards = { 'a.safetensors': { x: 9_000 }, 'b.safetensors': { y: 4_000 } };
  here.hub.publish('o/m', transformersModel({ shards }));
  const { path } = await here.pull('o/m');
  const file = join(path, 'b.safetensors');
  const missing = readFileSync(file);
  const { statfsSync } = fs;
  let freeBytes = 0;
  fs.statfsSync = ((at: string) => Object.assign(statfsSync(at), { bavail: freeBytes, bsize: 1 })) as typeof statfsSync;
  syncBuiltinESMExports();
  t.teardown(() => {
    fs.statfsSync = statfsSync;
    syncBuiltinESMExports();
  });
  t.match(await here.pull('o/m'), { downloaded: false }, 'whole, on a full disk');
  writeFileSync(file, Buffer.alloc(missing.length));
  await here.models.verify(await here.models.find('o/m'), new AbortController().signal);
  const quarantine = here.models.store.layout.quarantine('o/m');
  t.equal(readdirSync(quarantine).length, 1);
  freeBytes = missing.length - 1;
  t.match(await here.refused('o/m'), { code: 'disk_full', details: { neededBytes: String(missing.length), freeBytes: String(freeBytes) } });
  t.notOk(existsSync(quarantine), 'what was kept to be looked at gives way first');
  leavePartial(here.root, here.models, 'o/m', sha256(missing), missing.subarray(0, 1_000));
  freeBytes = missing.length - 1_001;
  t.match(await here.refused('o/m'), { code: 'disk_full', details: { neededBytes: String(missing.length - 1_000) } });
  freeBytes = missing.length - 1_000;
  t.match(await here.pull('o/m'), { downloaded: true, downloadedBytes: missing.length - 1_000 }, 'far less than the whole model');
  t.strictSame(readFileSync(file), missing);
});

t.test('B151: the volume that counts is the one that receives the files, wherever temporary files go', { skip: process.platform === 'linux' ? false : 'no /dev/shm here' }, async (t) => {
  const [volume, elsewhere] = ['/dev/shm', temporary(t)];
  const volumeOf = (path: string): number => fs.statSync(path).dev;
  t.not(volumeOf(volume), volumeOf(elsewhere), 'two volumes');
  const here = await scene(t, { volume });
  const { files, content } = oneFile(2_000_000);
  here.hub.publish('o/m', files);
  // What is free there is told small, and a plenty elsewhere; and the other way round.
  const { statfsSync, renameSync } = fs;
  const { rename } = fs.promises;
  const free = new Map<number, number>();
  const crossed: string[] = [];
  fs.statfsSync = ((at: string) => Object.assign(statfsSync(at), { bavail: free.get(volumeOf(at)) ?? 0, bsize: 1 })) as typeof statfsSync;
  fs.renameSync = (from, to) => { crossed.push(String(from), String(to)); renameSync(from, to); };
  fs.promises.rename = async (from, to) => { crossed.push(String(from), String(to)); await rename(from, to); };
  syncBuiltinESMExports();
  const before = process.env['TMPDIR'];
  process.env['TMPDIR'] = elsewhere;
  t.teardown(() => {
    Object.assign(fs, { statfsSync, renameSync });
    fs.promises.rename = rename;
    syncBuiltinESMExports();
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  });
  free.set(volumeOf(elsewhere), 2 ** 40).set(volumeOf(volume), content.length - 1);
  t.match(await here.refused('o/m'), { code: 'disk_full', details: { neededBytes: String(content.length), freeBytes: String(content.length - 1), volume: '/dev/shm' } });
  free.set(volumeOf(elsewhere), 0).set(volumeOf(volume), content.length);
  t.match(await here.pull('o/m'), { downloaded: true });
  t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), content);
  t.ok(crossed.length > 0 && crossed.every((path) => path.startsWith(here.root)), 'no rename leaves the volume');
  t.strictSame(readdirSync(elsewhere), [], 'nothing was left, or ever meant to be, elsewhere');
});

t.test('B155: staging a commit does not move what a branch was', async (t) => {
  const here = await scene(t);
  const first = here.hub.publish('o/m', oneFile().files);
  const second = here.hub.publish('o/m', oneFile(4_000).files);
  t.equal((await here.pull('o/m')).profile.revision, second);
  t.equal((await here.pull(`o/m@${first}`)).profile.revision, first);
  t.equal((await here.models.find('o/m')).manifest.profile.revision, second);
  t.equal((await here.models.find(`o/m@${first}`)).manifest.profile.revision, first);
  await here.hub.close();
  t.match(await here.models.runnable({ kind: 'hub', repository: 'o/m', revision: null, selection: null }), { source: join(here.folder('o/m'), 'x-Q8_0.gguf') }, 'without a hub');
});

t.test('B206: a hash that was pinned is held against the hub before the first byte', async (t) => {
  const here = await scene(t);
  const { files, hash } = oneFile();
  here.hub.publish('o/m', files);
  const pinned = 'f'.repeat(64);
  t.match(await here.refused('o/m', { pins: { 'x-Q8_0.gguf': pinned } }), { code: 'hash_pin_mismatch', message: new RegExp(`${pinned}, and the hub has ${hash}`) });
  t.strictSame(here.fetched(), []);
  t.notOk(existsSync(here.root), 'nothing was made on disk');
  t.match(await here.pull('o/m', { pins: { 'x-Q8_0.gguf': hash.toUpperCase() } }), { downloaded: true });
});

t.test('B209: what is left of another revision is not continued, and is swept', async (t) => {
  const here = await scene(t);
  const [first, second] = [oneFile(3_000), { ...oneFile(3_000), content: Buffer.from(oneFile(3_000).content).fill(9, 2_900) }];
  here.hub.publish('o/m', first.files);
  leavePartial(here.root, here.models, 'o/m', first.hash, first.content.subarray(0, 1_000));
  here.hub.publish('o/m', [large('x-Q8_0.gguf', second.content)]);
  await here.pull('o/m');
  t.strictSame(here.fetched(), [sha256(second.content).slice(0, 8)], 'from the beginning');
  t.strictSame(readFileSync(join(here.folder('o/m'), 'x-Q8_0.gguf')), second.content);
  t.strictSame(partialsOf(here, 'o/m'), []);
});

t.test('B173: nothing is written through a link that stands in the store', async (t) => {
  const here = await scene(t);
  const outside = temporary(t);
  here.hub.publish('o/m', [large('sub/x-Q8_0.gguf', oneFile().content)]);
  mkdirSync(here.folder('o/m'), { recursive: true });
  symlinkSync(outside, join(here.folder('o/m'), 'sub'));
  t.match(await here.refused('o/m'), { code: 'link_refused' });
  t.strictSame(readdirSync(outside), []);
  rmSync(join(here.folder('o/m'), 'sub'));
  mkdirSync(join(here.folder('o/m'), 'sub'));
  writeFileSync(join(outside, 'victim'), 'x');
  symlinkSync(join(outside, 'victim'), join(here.folder('o/m'), 'sub', 'x-Q8_0.gguf'));
  await here.pull('o/m');
  t.equal(readFileSync(join(outside, 'victim'), 'utf8'), 'x', 'a link in a file\'s place is replaced');
});

t.test('B173: nothing is read, checked or removed through a link that stands in the store, whichever part of it', async (t) => {
  const here = await scene(t);
  const outside = temporary(t);
  const { signal } = new AbortController();
  here.hub.publish('o/m', [large('sub/x-Q8_0.gguf', oneFile().content)]);
  const { path, profile } = await here.pull('o/m');
  const { layout } = here.models.store;
  const model = await here.models.find(profile.id);
  const parts = [join(path, 'sub'), path, layout.repositoryFolder('o/m'), layout.weightsFolder, join(layout.profilesFolder, profile.id), layout.profilesFolder];
  for (const [index, part] of parts.entries()) {
    const elsewhere = join(outside, String(index));
    renameSync(part, elsewhere);
    symlinkSync(elsewhere, part);
    const before = readdirSync(elsewhere, { recursive: true });
    t.match(await here.models.find(profile.id).then(() => null, (error: unknown) => error), { code: 'link_refused' }, part);
    t.match(await here.models.remove(model, [], signal).then(() => null, (error: unknown) => error), { code: 'link_refused' }, part);
    if (index < 4) t.match(await here.models.verify(model, signal).then(() => null, (error: unknown) => error), { code: 'link_refused' }, part);
    t.match(await here.refused('o/m'), { code: 'link_refused' }, part);
    t.strictSame(readdirSync(elsewhere, { recursive: true }), before, 'nothing there has changed');
    rmSync(part);
    renameSync(elsewhere, part);
  }
  const marker = layout.marker({ repository: 'o/m', commit: profile.revision });
  const text = readFileSync(marker, 'utf8');
  writeFileSync(join(outside, 'victim'), 'x');
  writeFileSync(marker, text.replaceAll('sub/x-Q8_0.gguf', relative(path, join(outside, 'victim'))));
  t.match(await here.models.find(profile.id), { missing: 'it was never staged to the end' }, 'a marker that leads out is none');
  await here.models.remove(await here.models.find(profile.id), [], signal);
  t.equal(readFileSync(join(outside, 'victim'), 'utf8'), 'x');
});

t.test('what stands in the place of a file, and is none, is told by verify as often as it is asked, and replaced by pull', async (t) => {
  const here = await scene(t);
  const { signal } = new AbortController();
  const { files, content } = oneFile();
  here.hub.publish('o/m', files);
  const { path, profile } = await here.pull('o/m');
  const file = join(path, 'x-Q8_0.gguf');
  const victim = join(temporary(t), 'victim');
  writeFileSync(victim, content);
  const instead: readonly (readonly [string, () => unknown])[] = [
    ['nothing', () => undefined], ['a link', () => { symlinkSync(victim, file); }], ['a pipe', () => execFileSync('mkfifo', [file])], ['a folder', () => mkdirSync(file)],
  ];
  for (const [what, make] of instead) {
    rmSync(file, { recursive: true });
    make();
    const model = await here.models.find(profile.id);
    t.equal(model.missing, 'x-Q8_0.gguf is not there', what);
    for (const sizeBytes of [content.length, null]) {
      t.strictSame(await here.models.verify(model, signal), [{ path: 'x-Q8_0.gguf', sizeBytes, fault: 'no file of its own is there', keptAt: null }], what);
    }
    make();
    await here.pull('o/m');
    t.strictSame(readFileSync(file), content, what);
  }
  t.strictSame(readFileSync(victim), content, 'what a link led to stays');
  for (const record of [here.models.store.layout.profileFile(profile.id), here.models.store.layout.marker({ repository: 'o/m', commit: profile.revision })]) {
    rmSync(record);
    execFileSync('mkfifo', [record]);
    await t.rejects(here.models.find(profile.id), { code: 'store_unusable', details: { path: record } }, 'a pipe is not waited for');
    rmSync(record);
    await here.pull('o/m');
  }
});

t.test('a listener that throws, and a signal, end a staging and leave what can be continued', async (t) => {
  const here = await scene(t);
  here.hub.publish('o/m', oneFile(500_000).files);
  await t.rejects(here.pull('o/m', { onProgress: () => { throw new Error('the listener broke'); } }), { message: /the listener broke/ }, 'R174');
  here.hub.publish('o/n', oneFile(600_000).files);
  const stop = new AbortController();
  const whole = (fault: Fault) => (delivery: Parameters<Fault>[0]) => delivery.request.range === null && fault(delivery);
  here.hub.fault(/GET \/blobs/, whole((delivery) => {
    void faults.stallsAfter(100_000)(delivery);
    stop.abort(new LeaseholdError('request_cancelled', { what: 'The pull' }));
    return true;
  }), 2);
  await t.rejects(here.pull('o/n', { signal: stop.signal }), { code: 'request_cancelled' });
  t.match(await here.pull('o/n'), { downloaded: true });
});

t.test('who gives up while a busy hub is waited for is told his own reason', async (t) => {
  const stop = new AbortController();
  const resting = realPauses.sleep(3_600_000, stop.signal);
  stop.abort(new LeaseholdError('request_cancelled', { what: 'The pull' }));
  await t.rejects(resting, { code: 'request_cancelled' });
  await t.rejects(realPauses.sleep(3_600_000, stop.signal), { code: 'request_cancelled' }, 'also before it began');
});

t.test('a store that cannot be written, or whose file system keeps no promises, is refused', async (t) => {
  const here = await scene(t);
  here.hub.publish('o/m', oneFile().files);
  writeFileSync(join(here.root), 'a file');
  t.match(await here.refused('o/m'), { code: 'store_unusable' });
  rmSync(here.root);
  t.match(await here.pull('o/m'), { downloaded: true });
});
