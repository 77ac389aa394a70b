// A staging that is killed, at fifty moments of its own: whoever comes next finishes it, and fetches no file twice that was whole.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Models } from '../../src/models/models.js';
import { transformersModel } from './hub/models.js';
import { sha256, startHub } from './hub/server.js';

const stagerPath = fileURLToPath(new URL('./hub/stager.js', import.meta.url));
const killings = 50;
const noDonors = { hub: [], llama: [], ollama: [] };

t.test(`killed at ${String(killings)} random moments, a staging is finished right by the next, and no verified file is fetched again`, { timeout: 280_000 }, async (t) => {
  const hub = await startHub();
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-kill-'));
  t.teardown(async () => {
    await hub.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const shards = Object.fromEntries(Array.from({ length: 6 }, (_, index) => [`m-${String(index)}.safetensors`, { [`t.${String(index)}`]: 600_000 + 2 * index }]));
  const files = transformersModel({ shards });
  hub.publish('o/m', files);
  // Slow enough that a killing falls into it: each body comes in pieces, a turn of the loop apart.
  hub.fault(/GET \/blobs/, ({ request, response, file }) => {
    const start = Number(/^bytes=(\d+)-$/.exec(request.range ?? '')?.[1] ?? (request.range === null ? 0 : NaN));
    if (file === null || Number.isNaN(start)) return false;
    response.writeHead(start > 0 ? 206 : 200, { 'content-length': String(file.bytes.length - start), ...start > 0 ? { 'content-range': `bytes ${String(start)}-${String(file.bytes.length - 1)}/${String(file.bytes.length)}` } : {} });
    let at = start;
    const more = (): void => {
      if (response.destroyed) return;
      const piece = file.bytes.subarray(at, at + 50_000);
      at += piece.length;
      sent += piece.length;
      for (const [hear, wanted] of heard) if (sent >= wanted) hear();
      if (at === file.bytes.length) response.end(piece);
      else response.write(piece, () => { setImmediate(more); });
    };
    more();
    return true;
  }, Infinity);
  let sent = 0;
  const heard = new Map<() => void, number>();
  const total = files.filter(({ large }) => large).reduce((sum, { bytes }) => sum + bytes.length, 0);
  // A seed of its own each run would not be found again.
  let seed = 20_261_130;
  const random = (): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed / 2 ** 31;
  };
  const models = new Models({ env: { HF_ENDPOINT: hub.endpoint }, root: join(folder, 'store'), donors: noDonors });
  t.teardown(() => models.close());
  const { layout } = models.store;
  const snapshot = { repository: 'o/m', commit: hub.repositories.get('o/m')!.refs.get('main')! };
  let refetched = 0;
  let finished = 0;
  let begun = 0;
  for (let round = 0; round < killings; round++) {
    if (existsSync(layout.marker(snapshot))) {
      finished++;
      rmSync(join(folder, 'store'), { recursive: true, force: true });
    }
    const whole = new Set(files.filter(({ path, bytes }) => {
      const there = join(layout.snapshotFolder(snapshot), path);
      return existsSync(there) && sha256(readFileSync(there)) === sha256(bytes);
    }).map(({ bytes }) => sha256(bytes)));
    hub.requests.length = 0;
    const child = spawn(process.execPath, [stagerPath, 'o/m', join(folder, 'store')], { env: { ...process.env, HF_ENDPOINT: hub.endpoint }, stdio: 'ignore' });
    const closed = once(child, 'close');
    const wanted = sent + random() * total / 3;
    await Promise.race([closed, new Promise<void>((resolve) => { heard.set(resolve, wanted); })]);
    child.kill('SIGKILL');
    await closed;
    heard.clear();
    const bodies = hub.requests.filter(({ storage, range }) => storage && (range === null || range.endsWith('-')));
    if (bodies.length > 0) begun++;
    refetched += bodies.filter(({ path }) => whole.has(path.split('/').at(-1) ?? '')).length;
    // Whatever has its name is whole.
    for (const { path, bytes } of files) {
      const there = join(layout.snapshotFolder(snapshot), path);
      if (existsSync(there)) t.equal(sha256(readFileSync(there)), sha256(bytes), `round ${String(round)}: ${path}`);
    }
  }
  t.comment(`${String(begun)} of ${String(killings)} were killed in a download, ${String(finished)} times the next had finished it`);
  t.ok(begun > killings / 2, 'killings fell into downloads');
  t.equal(refetched, 0);
  const { path } = await models.pull('o/m');
  for (const file of files) t.strictSame(readFileSync(join(path, file.path)), file.bytes);
  t.strictSame(readdirSync(layout.partials('o/m')), []);
  t.equal((await models.find('o/m')).missing, null);
});
