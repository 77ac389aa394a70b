/** Hashes a file up to where its writer says that it is, and waits there for more. */
import { closeSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { newHash } from './hashing.js';
import type { HashBehindTask } from './running-hash.js';

const pieceBytes = 1024 * 1024;

function hashBehind({ path, algorithm, sizeBytes, written }: HashBehindTask): string {
  const hash = newHash(algorithm, sizeBytes);
  const piece = Buffer.allocUnsafe(pieceBytes);
  const file = openSync(path, 'r');
  try {
    for (let doneBytes = 0; ; ) {
      const said = Atomics.load(written, 0);
      const isAll = said < 0n;
      const availableBytes = Number(isAll ? ~said : said) - doneBytes;
      if (availableBytes === 0) {
        if (isAll) return hash.digest('hex');
        Atomics.wait(written, 0, said);
        continue;
      }
      const read = readSync(file, piece, 0, Math.min(pieceBytes, availableBytes), doneBytes);
      // Shorter than its writer left it: its hash is not the wanted one.
      if (read === 0) return hash.digest('hex');
      hash.update(piece.subarray(0, read));
      doneBytes += read;
    }
  } finally {
    closeSync(file);
  }
}

parentPort?.postMessage(hashBehind(workerData as HashBehindTask));
