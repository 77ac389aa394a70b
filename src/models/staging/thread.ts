/** Runs in a piscina thread: one file hashed, copied or fetched. Its loop is its own, so it reads and writes without waiting for others. */
import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, readSync, statSync } from 'node:fs';
import { LeaseholdError } from '../../../protocol/index.js';
import { writeFault } from '../store/volume.js';
import { newHash, writeAll } from './hashing.js';
import { Control, type CopyTask, type HashTask, type StagingTask, type TransferOutcome } from './task.js';
import { transfer } from './transfer.js';

const pieceBytes = 1024 * 1024;

export default async function run(task: StagingTask): Promise<TransferOutcome> {
  try {
    if (task.kind === 'transfer') return await transfer(task);
    return { kind: 'done', hex: task.kind === 'hash' ? hashFile(task) : copyFile(task) };
  } catch (error) {
    if (error instanceof LeaseholdError) return { kind: 'failed', code: error.code, details: error.details };
    const { code, details } = writeFault(error, task.path, missingBytes(task));
    return { kind: 'failed', code, details };
  }
}

function missingBytes({ path, sizeBytes }: StagingTask): number {
  return Math.max(0, sizeBytes - (statSync(path, { throwIfNoEntry: false })?.size ?? 0));
}

function hashFile({ path, algorithm, control }: HashTask): string {
  const file = openSync(path, 'r');
  try {
    return hashThrough(file, algorithm, new Control(control), () => undefined);
  } finally {
    closeSync(file);
  }
}

function copyFile({ from, path, algorithm, control }: CopyTask): string {
  const [source, target] = [openSync(from, 'r'), openSync(path, 'r+')];
  try {
    ftruncateSync(target, 0);
    const hex = hashThrough(source, algorithm, new Control(control), (piece, position) => { writeAll(target, piece, position); });
    fsyncSync(target);
    return hex;
  } finally {
    closeSync(source);
    closeSync(target);
  }
}

function hashThrough(file: number, algorithm: 'sha256' | 'git', control: Control, take: (piece: Uint8Array, position: number) => void): string {
  const hash = newHash(algorithm, fstatSync(file).size);
  const piece = Buffer.allocUnsafe(pieceBytes);
  for (let doneBytes = 0; ; ) {
    if (control.stopped) throw new LeaseholdError('request_cancelled', { what: 'Staging' });
    const read = readSync(file, piece, 0, pieceBytes, doneBytes);
    if (read === 0) return hash.digest('hex');
    hash.update(piece.subarray(0, read));
    take(piece.subarray(0, read), doneBytes);
    doneBytes += read;
    control.doneBytes = doneBytes;
  }
}
