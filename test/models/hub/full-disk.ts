/**
 * Loaded before a stager: the volume of its store fills up. Of what is written to files there in this process, threads
 * included, only so many bytes find room; room made by a removal is not given back.
 */
import fs from 'node:fs';
import fsPromises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { fileURLToPath } from 'node:url';
import threads, { getEnvironmentData, isMainThread, setEnvironmentData, type WorkerOptions } from 'node:worker_threads';

const roomBytes = Number(process.env['ROOM_BYTES'] ?? 0);
/** Shared by all threads. */
const used = isMainThread ? new BigInt64Array(new SharedArrayBuffer(8)) : getEnvironmentData('used') as BigInt64Array;
if (isMainThread) setEnvironmentData('used', used);

// Threads take nothing over that their process was told to load: here each loads this.
const { Worker } = threads;
threads.Worker = class extends Worker {
  constructor(script: string | URL, options: WorkerOptions = {}) {
    super(script, { ...options, execArgv: ['--import', fileURLToPath(import.meta.url)] });
  }
};

function full(): NodeJS.ErrnoException {
  return Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', errno: -28, syscall: 'write' });
}

/** As a system does it: what still fits is written, and the next write fails. */
const writeSync = fs.writeSync;
fs.writeSync = ((file: number, bytes: Uint8Array, offset: number, length: number, position: number) => {
  const left = roomBytes - Number(Atomics.load(used, 0));
  if (left <= 0) throw full();
  const fits = Math.min(length, left);
  Atomics.add(used, 0, BigInt(fits));
  return writeSync(file, bytes, offset, fits, position);
}) as typeof fs.writeSync;

const open = fsPromises.open;
fsPromises.open = (async (...args: Parameters<typeof open>) => {
  const file = await open(...args);
  const writeFile = file.writeFile.bind(file);
  file.writeFile = async (text) => {
    const bytes = Buffer.byteLength(text);
    if (roomBytes - Number(Atomics.add(used, 0, BigInt(bytes))) < bytes) throw full();
    await writeFile(text);
  };
  return file;
});
syncBuiltinESMExports();
