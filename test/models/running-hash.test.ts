// A file's hash, taken while it is being written: by its own thread when it is large.
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, openSync, truncateSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { runningHash, type RunningHash } from '../../src/models/staging/running-hash.js';

const pieceBytes = 1024 ** 2;
const largeBytes = 33 * pieceBytes;
const never = new AbortController().signal;

/** Written and told of piece by piece. */
function written(t: Test, sizeBytes: number, algorithm: 'sha256' | 'git' = 'sha256'): { readonly path: string; readonly hash: RunningHash; readonly content: Buffer } {
  const path = join(t.testdir({ file: '' }), 'file');
  const content = randomBytes(sizeBytes);
  const hash = runningHash(path, algorithm, sizeBytes);
  t.teardown(() => { hash.close(); });
  const file = openSync(path, 'r+');
  for (let at = 0; at < sizeBytes; at += pieceBytes) {
    const piece = content.subarray(at, at + pieceBytes);
    writeSync(file, piece, 0, piece.length, at);
    hash.take(piece, at + piece.length);
  }
  closeSync(file);
  return { path, hash, content };
}

t.test('it is the hash of the whole, small or large, of both kinds', async (t) => {
  for (const sizeBytes of [0, 1, 5 * pieceBytes, largeBytes, largeBytes + 7]) {
    const { hash, content } = written(t, sizeBytes);
    t.equal(await hash.digest(never), createHash('sha256').update(content).digest('hex'), `${String(sizeBytes)} bytes`);
  }
  const { hash, content } = written(t, largeBytes, 'git');
  t.equal(await hash.digest(never), createHash('sha1').update(`blob ${String(largeBytes)}\0`).update(content).digest('hex'));
});

t.test('a file that lost bytes behind its writer has another hash', async (t) => {
  const path = join(t.testdir({ file: Buffer.alloc(pieceBytes).toString('latin1') }), 'file');
  const hash = runningHash(path, 'sha256', largeBytes);
  truncateSync(path, 100);
  hash.take(Buffer.alloc(0), pieceBytes);
  t.equal(await hash.digest(never), createHash('sha256').update(Buffer.alloc(100)).digest('hex'));
});

t.test('a file that cannot be read is an error with its code; who gives up is told his own reason', async (t) => {
  const gone = runningHash(join(t.testdir(), 'gone'), 'sha256', largeBytes);
  await t.rejects(gone.digest(never), { code: 'ENOENT' });
  const reason = new Error('enough');
  for (const when of ['before', 'while']) {
    const stop = new AbortController();
    const { hash } = written(t, largeBytes);
    if (when === 'before') stop.abort(reason);
    const digest = hash.digest(stop.signal);
    stop.abort(reason);
    await t.rejects(digest, reason, when);
  }
});

t.test('one that was closed leaves no thread behind', async (t) => {
  const { hash } = written(t, largeBytes);
  hash.close();
  await t.rejects(hash.digest(never), { message: /ended/ });
});

t.test('its thread loads nothing that the process was told to load first', async (t) => {
  const first = 'data:text/javascript,console.log(1)';
  const hashes = `
    import { runningHash } from ${JSON.stringify(new URL('../../src/models/staging/running-hash.js', import.meta.url).href)};
    const hash = runningHash(process.execPath, 'sha256', ${String(largeBytes)});
    hash.take(Buffer.alloc(0), 1);
    console.log(await hash.digest(new AbortController().signal));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', first, '--input-type=module', '-e', hashes], { env: { ...process.env, NODE_OPTIONS: `--import ${first}` } });
  t.strictSame(stdout.split('\n'), ['1', createHash('sha256').update('\x7f').digest('hex'), '']);
});
