// B151: a disk that fills up in mid-transfer. Nothing half is left under a name, the error says what is missing and where, and a later pull goes on.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { transformersModel } from './hub/models.js';
import { scene, stagerPath, type Scene } from './hub/scene.js';
import { sha256 } from './hub/server.js';

const fullDiskPath = fileURLToPath(new URL('./hub/full-disk.js', import.meta.url));
const shards = { 'a.safetensors': { x: 600_000 }, 'b.safetensors': { y: 700_000 } };

interface Told {
  readonly downloaded?: boolean;
  readonly downloadedBytes?: number;
  readonly freedBytes?: number;
  readonly error?: { readonly code: string; readonly message: string; readonly details: Readonly<Record<string, string>> };
}

/** Stages in a process whose disk takes `roomBytes` more. */
async function stageWith(here: Scene, roomBytes: number, order: 'pull' | 'remove' = 'pull'): Promise<Told> {
  const child = spawn(process.execPath, ['--import', fullDiskPath, stagerPath, 'o/m', here.root, order], {
    env: { ...process.env, HF_ENDPOINT: here.hub.endpoint, ROOM_BYTES: String(roomBytes) }, stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (text: Buffer) => { said += text.toString(); });
  await once(child, 'close');
  return JSON.parse(said) as Told;
}

t.test('B151: a disk that fills in mid-transfer leaves what can be continued, and the error says how much is missing on which volume', async (t) => {
  const here = await scene(t);
  const files = transformersModel({ shards });
  here.hub.publish('o/m', files);
  const total = files.reduce((sum, { bytes }) => sum + bytes.length, 0);
  const wanted = new Set(files.map(({ bytes }) => sha256(bytes)));
  let beforeBytes = 0;
  // Each with some room, whoever had some before: the same bytes are never written twice.
  for (const roomBytes of [1_000, 300_000, 400_000]) {
    const { error } = await stageWith(here, roomBytes);
    t.match(error, { code: 'disk_full', message: /^The volume \/.* has .* free; .* are missing there for / });
    const folder = here.folder('o/m');
    const partials = here.models.store.layout.partials('o/m');
    const there = (at: string): number => readdirSync(at).filter((name) => !name.startsWith('.leasehold')).reduce((sum, name) => sum + statSync(join(at, name)).size, 0);
    const thereBytes = there(folder) + there(partials);
    t.equal(Number(error?.details['neededBytes']), total - thereBytes, 'what is not there is missing, to the byte');
    t.equal(error?.details['path'], folder);
    t.ok(folder.startsWith(error?.details['volume'] ?? '?'));
    t.ok(thereBytes > beforeBytes, 'all that found room is kept');
    beforeBytes = thereBytes;
    for (const name of readdirSync(folder)) t.ok(wanted.has(sha256(readFileSync(join(folder, name)))), `${name} has its name and is whole`);
    t.notOk(existsSync(here.models.store.layout.marker({ repository: 'o/m', commit: here.hub.repositories.get('o/m')?.refs.get('main') ?? '' })), 'no marker');
    t.strictSame(readdirSync(join(folder, '..')).filter((name) => name.endsWith('.lock')), [], 'no lock');
    t.strictSame(await here.models.list(), [], 'no profile');
  }
  const { downloaded, downloadedBytes } = await stageWith(here, 10_000_000);
  t.strictSame([downloaded, downloadedBytes], [true, total - beforeBytes], 'and then only the rest is fetched');
  t.equal((await here.models.find('o/m')).missing, null);
  t.ok((await here.models.verify(await here.models.find('o/m'), new AbortController().signal)).every(({ fault }) => fault === null));
});

t.test('B151: with no room at all not even a lock can be made, and that is told the same way', async (t) => {
  const here = await scene(t);
  here.hub.publish('o/m', transformersModel({ shards }));
  const { error } = await stageWith(here, 0);
  t.match(error, { code: 'disk_full', details: { path: /\.download\.lock$/ } });
  t.strictSame(readdirSync(join(here.folder('o/m'), '..')).filter((name) => name.endsWith('.lock')), [], 'none that is empty, either');
});

t.test('B151: room for the files and none for what says that they are there: the next pull fetches nothing', async (t) => {
  const here = await scene(t);
  const files = transformersModel({ shards });
  here.hub.publish('o/m', files);
  const total = files.reduce((sum, { bytes }) => sum + bytes.length, 0);
  t.match(await stageWith(here, total + 200), { error: { code: 'disk_full', details: { path: /\.leasehold-complete\.json$/ } } });
  t.strictSame(readdirSync(here.folder('o/m')).sort(), files.map(({ path }) => path).sort());
  here.fetched();
  t.match(await here.pull('o/m'), { downloaded: false });
  t.strictSame(here.fetched(), []);
});

t.test('B151: what makes room works on a full disk', async (t) => {
  const here = await scene(t);
  const files = transformersModel({ shards });
  here.hub.publish('o/m', files);
  await here.pull('o/m');
  t.equal((await stageWith(here, 0, 'remove')).freedBytes, files.reduce((sum, { bytes }) => sum + bytes.length, 0));
  t.notOk(existsSync(here.folder('o/m')));
  t.strictSame(await here.models.list(), []);
});
