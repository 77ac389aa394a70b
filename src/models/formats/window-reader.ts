/**
 * Reads a source forwards through a small window: what is announced is compared with what is there before it is believed.
 * Items are taken synchronously once `prepare` has brought them into the window: a hostile header is a hundred thousand
 * of them, and waiting for nothing is what most of its time would go to.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { unusableFile } from './fault.js';
import type { ByteSource } from './source.js';
import type { LeaseholdError } from '../../../protocol/index.js';

const windowBytes = 1024 * 1024;
/** Read of one header, what is passed over not counted: of a file on a hub no more is asked for, whatever it announces. The largest in use is a fifth of it. */
const headerBytesMax = 128 * 1024 * 1024;
/** Items taken between two turns of the loop. */
const itemsATurn = 4_096;
const twoTo32 = 2 ** 32;

export class WindowReader {
  #window: Buffer = Buffer.alloc(0);
  /** Offset in the source of the window's first byte. */
  #windowOffset = 0;
  #at = 0;
  #items = 0;
  #readBytes = 0;

  constructor(private readonly source: ByteSource, private readonly signal: AbortSignal | undefined) {}

  fault(reason: string): LeaseholdError {
    return unusableFile(this.source.name, reason);
  }

  get sizeBytes(): number {
    return this.source.sizeBytes;
  }

  get offset(): number {
    return this.#windowOffset + this.#at;
  }

  get remainingBytes(): number {
    return this.sizeBytes - this.offset;
  }

  /** Asked before each item: true when `count` bytes, or all that are left, can be taken now; else `prepare` is to be awaited. */
  ready(count: number): boolean {
    return ++this.#items % itemsATurn !== 0 && this.#holds(count);
  }

  /** Lets others have their turn, and brings `count` bytes (at most 1 MiB), or all that are left, into the window. */
  async prepare(count: number): Promise<void> {
    if (this.#items % itemsATurn === 0) await nextTurn();
    this.signal?.throwIfAborted();
    if (!this.#holds(count)) await this.#fill();
  }

  /** Takes `count` bytes. They are only good until the next `prepare`. */
  take(count: number): Buffer {
    if (this.#window.length - this.#at < count) throw this.#ended();
    const bytes = this.#window.subarray(this.#at, this.#at + count);
    this.#at += count;
    return bytes;
  }

  /** Passes over `count` bytes without reading them. */
  skip(count: number): void {
    if (count > this.remainingBytes) throw this.#ended();
    const within = Math.min(count, this.#window.length - this.#at);
    this.#at += within;
    if (within === count) return;
    this.#windowOffset = this.offset + count - within;
    this.#window = Buffer.alloc(0);
    this.#at = 0;
  }

  u32(): number {
    if (this.#window.length - this.#at < 4) throw this.#ended();
    this.#at += 4;
    return this.#window.readUInt32LE(this.#at - 4);
  }

  u64(): bigint {
    return this.take(8).readBigUInt64LE(0);
  }

  /** A 64-bit count of things of at least `itemBytes` bytes each: more than the rest can hold, or than `most`, is a fault. */
  count(itemBytes: number, what: string, most = Number.MAX_SAFE_INTEGER): number {
    const low = this.u32();
    const high = this.u32();
    // Beyond 2^53 it is not exact, and far above any file.
    const announced = high * twoTo32 + low;
    if (announced > Math.floor(this.remainingBytes / itemBytes)) {
      throw this.fault(`it announces ${String(BigInt(high) * BigInt(twoTo32) + BigInt(low))} ${what}, more than its ${String(this.sizeBytes)} bytes can hold`);
    }
    if (announced > most) throw this.fault(`it announces ${String(announced)} ${what}; at most ${String(most)} are sensible`);
    return announced;
  }

  /** The length of a text that follows, of at most `bytesMax` bytes. */
  textBytes(bytesMax: number, what: string): number {
    const length = this.count(1, `bytes of ${what}`);
    if (length > bytesMax) throw this.fault(`${what} has ${String(length)} bytes; at most ${String(bytesMax)} are sensible`);
    return length;
  }

  #holds(count: number): boolean {
    return this.#window.length - this.#at >= Math.min(count, this.remainingBytes);
  }

  async #fill(): Promise<void> {
    if (this.#readBytes > headerBytesMax) throw this.fault(`its header goes on beyond ${String(headerBytesMax)} bytes`);
    const from = this.offset;
    const bytes = await this.source.read(from, Math.min(windowBytes, this.sizeBytes - from));
    this.#window = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#readBytes += bytes.length;
    this.#windowOffset = from;
    this.#at = 0;
  }

  #ended(): LeaseholdError {
    return this.fault(`it ends at byte ${String(this.sizeBytes)}, in the middle of its header`);
  }
}
