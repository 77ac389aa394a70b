/** What lies in the state folder in place of what should: each a typed error that names the path and what to do; nothing is followed, waited for or left over. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createLog } from '../../../broker/shell/index.js';
import { lockFile, readHolder } from '../../../broker/shell/file-lock.js';
import { dataSocketPath, openStateFolder, readStateFolder, removeDataSocket, removeStaleDataSockets } from '../../../broker/shell/state-folder.js';
import { holderElsewhere } from '../../integration/holder-elsewhere.js';
import { folder, open, refusal, scripted, thrown, until } from '../../integration/support.js';

/** Ways to lay something at a path that is no private file, and what is said of it. */
const impostors: readonly { readonly what: string; readonly lay: (path: string) => void; readonly said: RegExp }[] = [
  { what: 'a FIFO', lay: (path) => { execFileSync('mkfifo', [path]); }, said: /is (a socket or )?a FIFO, not a file; remove it/ },
  { what: 'a folder', lay: (path) => { mkdirSync(path); }, said: /is a folder, not a file; remove it/ },
  { what: 'a link to a device', lay: (path) => { symlinkSync('/dev/zero', path); }, said: /is a symbolic link, which is not followed; remove it/ },
  { what: 'a link to nothing', lay: (path) => { symlinkSync(`${path}.nowhere`, path); }, said: /is a symbolic link/ },
  { what: 'a link to a file of ours', lay: (path) => { writeFileSync(`${path}.victim`, 'precious'); symlinkSync(`${path}.victim`, path); }, said: /is a symbolic link/ },
];

t.test('a secret that is no private file of 64 digits is refused, by who starts and by who attaches', async (t) => {
  for (const { what, lay, said } of impostors) {
    const path = folder(t);
    const secret = join(path, 'secret');
    lay(secret);
    for (const open of [openStateFolder, readStateFolder]) t.match(thrown(() => open(path)), { code: 'config_unreadable', details: { path: secret }, message: said }, what);
  }
  for (const text of ['', 'abc', 'A'.repeat(64), '\0\xff\x01', 'a'.repeat(5_000_000)]) {
    const path = folder(t);
    writeFileSync(join(path, 'secret'), text);
    for (const open of [openStateFolder, readStateFolder]) t.match(thrown(() => open(path)), { code: 'config_unreadable', message: /secret cannot be read: it .*remove it/ });
  }
});

t.test('a secret that others could read is closed to them', async (t) => {
  const path = folder(t);
  writeFileSync(join(path, 'secret'), `${'a'.repeat(64)}\n`);
  chmodSync(join(path, 'secret'), 0o644);
  t.equal(openStateFolder(path).secret, 'a'.repeat(64));
  t.equal(statSync(join(path, 'secret')).mode & 0o777, 0o600);
});

t.test('a lock that is no private file is refused, and what a link names is not touched', async (t) => {
  for (const { what, lay, said } of impostors) {
    const path = join(folder(t), 'broker.lock');
    lay(path);
    t.match(thrown(() => lockFile(path)), { code: 'config_unreadable', details: { path }, message: said }, what);
    if (existsSync(`${path}.victim`)) t.equal(readFileSync(`${path}.victim`, 'utf8'), 'precious');
    t.notOk(existsSync(`${path}.nowhere`), 'nothing is made where a link leads');
    t.match(readHolder(path), { pid: 'unknown' }, 'nor is it waited for to learn who holds it');
  }
  const path = join(folder(t), 'broker.lock');
  writeFileSync(path, Buffer.from(Array.from({ length: 9_999 }, (_, index) => index % 256)), { mode: 0o644 });
  const lock = lockFile(path);
  t.match(JSON.parse(readFileSync(path, 'utf8')), { pid: process.pid }, 'garbage in it is overwritten');
  t.equal(statSync(path).mode & 0o777, 0o600);
  lock.release();
});

t.test('a state folder that is none says so', async (t) => {
  const path = folder(t);
  writeFileSync(join(path, 'file'), '');
  symlinkSync(path, join(path, 'link'));
  symlinkSync(join(path, 'nowhere'), join(path, 'dangling'));
  const cases = [['file', /is not a folder; give another path/], ['link', /is a symbolic link; give the folder itself/], ['dangling', /is a symbolic link/], ['file/below', /ENOTDIR/]] as const;
  for (const [name, said] of cases) t.match(thrown(() => openStateFolder(join(path, name))), { code: 'config_unreadable', message: said }, name);
  t.match(thrown(() => openStateFolder(join(path, 'nul\0byte'))), { code: 'input_invalid', message: /holds a NUL/ });
  t.notOk(existsSync(join(path, 'nowhere')));
});

t.test('who attaches makes nothing', async (t) => {
  const path = folder(t);
  t.equal(readStateFolder(path), null);
  t.strictSame(readdirSync(path), []);
  const made = openStateFolder(path);
  t.strictSame(readStateFolder(path), made);
  rmSync(join(path, 'secret'));
  t.equal(readStateFolder(path), null);
  t.strictSame(readdirSync(path), []);
});

t.test('a folder at the path of a worker\'s socket is in nobody\'s way and is left alone', async (t) => {
  const path = folder(t);
  const taken = dataSocketPath(path, '0123456789ab-w1');
  mkdirSync(taken);
  writeFileSync(join(taken, 'mine'), '');
  removeStaleDataSockets(path, new Set());
  removeDataSocket(taken);
  t.ok(existsSync(join(taken, 'mine')));
  t.match(thrown(() => { removeStaleDataSockets(join(path, 'nowhere'), new Set()); }), { code: 'config_unreadable' });
});

const moduleOf = (name: string): string => JSON.stringify(new URL(`../../../broker/shell/${name}.js`, import.meta.url).href);

/** Runs `body` where no file may grow: as on a full disk every write is refused. */
function whereNothingFits(body: string): unknown {
  const program = `
    const { openStateFolder } = await import(${moduleOf('state-folder')});
    const { lockFile } = await import(${moduleOf('file-lock')});
    const told = (action) => { try { action(); return 'done'; } catch (error) { return { name: error.name, code: error.code, message: error.message }; } };
    console.log(JSON.stringify(${body}));`;
  const { stdout, stderr } = spawnSync('bash', ['-c', 'trap "" XFSZ; ulimit -f 0; exec "$0" --input-type=module -e "$1"', process.execPath, program], { encoding: 'utf8' });
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout);
}

t.test('a disk that takes nothing is named, no half of a file is left, and once there is room all is well', async (t) => {
  const path = join(folder(t), 'state');
  const refused = { name: 'LeaseholdError', code: 'state_unwritable', message: /cannot be written: files may not grow/ };
  t.match(whereNothingFits(`told(() => openStateFolder(${JSON.stringify(path)}))`), refused);
  t.strictSame(readdirSync(path), []);
  const lock = join(path, 'broker.lock');
  t.match(whereNothingFits(`[told(() => lockFile(${JSON.stringify(lock)})), told(() => lockFile(${JSON.stringify(lock)}))]`), [refused, refused], 'and the lock is free again each time');
  t.match(openStateFolder(path).secret, /^[0-9a-f]{64}$/);
  lockFile(lock).release();
});

t.test('a place where nobody may make a folder is named', async (t) => {
  // Not even root makes folders there.
  t.match(thrown(() => openStateFolder('/proc/leasehold/state')), { code: 'state_unwritable', message: /^\/proc\/leasehold\/state cannot be written/, help: /LEASEHOLD_STATE/ });
});

t.test('a log that cannot be written costs its lines and nothing else, and tells of them when it can again', async (t) => {
  const lines: (readonly [string, string, Readonly<Record<string, unknown>>])[] = [];
  let full = false;
  const write = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string): void => {
    if (full) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    lines.push([level, message, fields]);
  };
  const log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  full = true;
  const orchestrator = await open(t, { log, models: { m: scripted({ text: 'hello' }) } });
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello', 'started, and served, with every line lost');
  t.strictSame(lines, []);
  full = false;
  await orchestrator.evict('m');
  await until('the news of what was lost', () => lines.some(([, message]) => message === 'lines could not be written for a while'));
  const told = lines.filter(([, message]) => message === 'lines could not be written for a while');
  t.equal(told.length, 1, 'once');
  t.match(told[0], { 0: 'warn', 2: { reason: /ENOSPC/ } });
  t.ok(Number(told[0]?.[2]['lostLines']) > 3);
});

t.test('a line of the log commands no terminal, begins no other line, and says the same to whoever parses it', (t) => {
  const file = join(folder(t), 'x.log');
  const said = 'a\u001B[31mb\u009B2Jc\u202Ed\u2028e\u200Ff\uFEFFg\nh\u007F';
  createLog('info', file).info({ said }, said);
  const text = readFileSync(file, 'utf8');
  t.notMatch(text, /[\u0000-\u0009\u000B-\u001F\u007F-\u009F\u200B-\u200F\u2028-\u202E\uFEFF]/);
  t.equal(text.trimEnd().split('\n').length, 1);
  t.match(JSON.parse(text), { msg: said, said });
  t.end();
});

t.test('whatever the umask, what a broker keeps is its own to read', async (t) => {
  const path = join(folder(t), 'deep', 'state');
  const before = process.umask(0o777);
  try {
    const orchestrator = await open(t, { stateFolder: path, models: { m: scripted({ text: 'hello' }) } });
    t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
    const modeOf = (name: string): number => statSync(join(path, name)).mode & 0o777;
    t.strictSame(['.', '..', 'secret', 'processes'].map(modeOf), [0o700, 0o700, 0o600, 0o700]);
    for (const record of readdirSync(join(path, 'processes'))) t.equal(modeOf(join('processes', record)), 0o600);
  } finally {
    process.umask(before);
  }
});

t.test('a log file that cannot be opened fails the start and says why', (t) => {
  const path = folder(t);
  execFileSync('mkfifo', [join(path, 'pipe')]);
  for (const [file, reason] of [[path, /it is a folder \(EISDIR\)/], [join(path, 'none', 'x.log'), /its folder is not there \(ENOENT\)/], [join(path, 'pipe'), /it is a FIFO that nobody reads/]] as const) {
    t.match(thrown(() => createLog('info', file)), { code: 'config_invalid', message: reason, details: { where: 'file' } });
  }
  t.end();
});

t.test('what cannot be put on record is not started, and that is said; who lives is put on record as soon as it can be', { skip: process.platform === 'win32' ? 'what is open is not removed there' : false }, async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'], models: { m: scripted({ text: 'hello' }) }, limits: { stateCheckMs: 20, backoffFirstMs: 1, backoffLastMs: 2 } });
  const records = join(stateFolder, 'processes');
  const nothingFits = (): void => {
    rmSync(records, { recursive: true });
    writeFileSync(records, '');
  };
  nothingFits();
  const refused = await refusal(orchestrator.load('m'));
  t.match(refused, { code: 'state_unwritable', message: /processes\/\S+ cannot be written: a part of its path is no folder \(ENOTDIR\)/, help: /Make room there/ });
  const holder = await holderElsewhere(t, stateFolder, 'held');
  t.match((await orchestrator.ledger()).leases, [{ model: 'held', lease: holder.lease }], 'a holder lives whatever is written of it');
  rmSync(records);
  await until('the folder and the record of the holder to be there', () => existsSync(records) && readdirSync(records).some((name) => name.endsWith('.json')));
  t.match(readdirSync(records).map((name) => JSON.parse(readFileSync(join(records, name), 'utf8')) as unknown), [{ role: 'holder', identity: { pid: holder.pid } }]);
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello', 'and what is to be started is');
  const [worker] = (await orchestrator.ledger()).workers;
  await until('its record', () => readdirSync(records).includes(`${worker?.generation ?? ''}.json`));
});
