/** A hub with one repository of one file, in a process of its own: it must not take the time of those who are measured. */
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const [path = '', sha256 = '', commit = ''] = process.argv.slice(2);
const size = statSync(path).size;
const info = JSON.stringify({ sha: commit, siblings: [{ rfilename: 'x-F16.gguf', size, blobId: 'c'.repeat(40), lfs: { sha256, size, pointerSize: 135 } }] });
const server = createServer(({ url = '', headers: { range } }, response) => {
  if (url.startsWith('/api/')) {
    response.end(info);
    return;
  }
  const [, from = '0', to = ''] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
  const [start, end] = [Number(from), to === '' ? size - 1 : Number(to)];
  response.writeHead(range === undefined ? 200 : 206, { 'content-length': end - start + 1, ...range === undefined ? {} : { 'content-range': `bytes ${String(start)}-${String(end)}/${String(size)}` } });
  createReadStream(path, { start, end, highWaterMark: 1024 ** 2 }).pipe(response);
});
server.listen(0, '127.0.0.1', () => { process.send?.((server.address() as AddressInfo).port); });
process.once('disconnect', () => process.exit());
