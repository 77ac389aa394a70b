/** Hashes and whole writes, for the threads of staging. */
import { createHash, type Hash } from 'node:crypto';
import { writeSync } from 'node:fs';

/** Git hashes a blob with its length before it. */
export function newHash(algorithm: 'sha256' | 'git', sizeBytes: number): Hash {
  return algorithm === 'sha256' ? createHash('sha256') : createHash('sha1').update(`blob ${String(sizeBytes)}\0`);
}

/** A write may take less than it is given. */
export function writeAll(file: number, bytes: Uint8Array, position: number): void {
  for (let written = 0; written < bytes.length;) written += writeSync(file, bytes, written, bytes.length - written, position + written);
}
