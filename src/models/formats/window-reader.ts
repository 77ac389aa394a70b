/** Reads a source forwards through a small window: what is announced is compared with what is there before it is believed. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { unusableFile } from './fault.js';
import type { ByteSource } from './source.js';
import type { LeaseholdError } from '../../../protocol/index.js';

const windowBytes = 1024 * 1024;
/** Small things taken between two turns of the loop. */
const itemsATurn = 4_096;

export class WindowReader {
  #window: Buffer = Buffer.alloc(0);
  /** Offset in the source of the window's first byte. */
  #windowOffset = 0;
  #at = 0;
  #items = 0;

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

  /** True when `count` bytes can be taken without waiting. */
  holds(count: number): boolean {
    return this.#window.length - this.#at >= count;
  }

  /** Brings `count` bytes (at most 1 MiB) into the window. */
  async fill(count: number): Promise<void> {
    this.signal?.throwIfAborted();
    if (count > this.remainingBytes) throw this.#ended();
    if (count > windowBytes) throw this.fault(`a text of ${String(count)} bytes stands where a name is expected`);
    const from = this.offset;
    const bytes = await this.source.read(from, Math.min(windowBytes, this.sizeBytes - from));
    this.#window = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#windowOffset = from;
    this.#at = 0;
  }

  /** Called for each item of a long list: now and then lets others have their turn. */
  async breathe(): Promise<void> {
    if (++this.#items % itemsATurn !== 0) return;
    await nextTurn();
    this.signal?.throwIfAborted();
  }

  /** Takes `count` bytes that the window holds. The bytes are only good until the next `fill`. */
  take(count: number): Buffer {
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

  async u32(): Promise<number> {
    if (!this.holds(4)) await this.fill(4);
    return this.take(4).readUInt32LE(0);
  }

  async u64(): Promise<bigint> {
    if (!this.holds(8)) await this.fill(8);
    return this.take(8).readBigUInt64LE(0);
  }

  /** A 64-bit count of things of at least `itemBytes` bytes each: more than the rest can hold, or than `most`, is a fault. */
  async count(itemBytes: number, what: string, most = Number.MAX_SAFE_INTEGER): Promise<number> {
    const announced = await this.u64();
    if (announced > BigInt(Math.floor(this.remainingBytes / itemBytes))) {
      throw this.fault(`it announces ${String(announced)} ${what}, more than its ${String(this.sizeBytes)} bytes can hold`);
    }
    if (announced > BigInt(most)) throw this.fault(`it announces ${String(announced)} ${what}; at most ${String(most)} are sensible`);
    return Number(announced);
  }

  /** A text of at most `bytesMax` bytes. */
  async text(bytesMax: number, what: string): Promise<string> {
    const length = await this.count(1, `bytes of ${what}`);
    if (length > bytesMax) throw this.fault(`${what} has ${String(length)} bytes; at most ${String(bytesMax)} are sensible`);
    if (!this.holds(length)) await this.fill(length);
    return this.take(length).toString('utf8');
  }

  #ended(): LeaseholdError {
    return this.fault(`it ends at byte ${String(this.sizeBytes)}, in the middle of its header`);
  }
}
