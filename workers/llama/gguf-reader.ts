/** Reads a file forwards through a small window: what is announced is compared with what is there before it is believed. */
import { open, stat, type FileHandle } from 'node:fs/promises';

/** What is wrong with a file, in words that follow "… cannot be used: ". */
export class GgufFault extends Error {
  override readonly name = 'GgufFault';
}

const windowBytes = 1024 * 1024;

export class GgufReader {
  #window: Buffer = Buffer.alloc(0);
  /** Offset in the file of the window's first byte. */
  #windowOffset = 0;
  #at = 0;

  private constructor(
    private readonly file: FileHandle,
    readonly fileBytes: number,
    private readonly signal: AbortSignal,
  ) {}

  /** Opens a regular file; a `GgufFault` says why it is none. */
  static async open(path: string, signal: AbortSignal): Promise<GgufReader> {
    // Looked at before it is opened: opening a pipe would wait for somebody to write.
    const kind = await stat(path).catch(unopened);
    if (!kind.isFile()) throw new GgufFault(kind.isDirectory() ? 'it is a directory' : 'it is not a regular file');
    const file = await open(path, 'r').catch(unopened);
    try {
      return new GgufReader(file, (await file.stat()).size, signal);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get offset(): number {
    return this.#windowOffset + this.#at;
  }

  get remainingBytes(): number {
    return this.fileBytes - this.offset;
  }

  /** True when `count` bytes can be taken without waiting. */
  holds(count: number): boolean {
    return this.#window.length - this.#at >= count;
  }

  /** Brings `count` bytes (at most 1 MiB) into the window. */
  async fill(count: number): Promise<void> {
    this.signal.throwIfAborted();
    if (count > this.remainingBytes) throw new GgufFault(`it ends at byte ${String(this.fileBytes)}, in the middle of its header`);
    if (count > windowBytes) throw new GgufFault(`a text of ${String(count)} bytes stands where a name is expected`);
    const from = this.offset;
    const window = Buffer.allocUnsafe(Math.min(windowBytes, this.fileBytes - from));
    let filledBytes = 0;
    while (filledBytes < window.length) {
      const { bytesRead } = await this.file.read(window, filledBytes, window.length - filledBytes, from + filledBytes);
      if (bytesRead === 0) throw new GgufFault('it shrank while it was read');
      filledBytes += bytesRead;
    }
    this.#window = window;
    this.#windowOffset = from;
    this.#at = 0;
  }

  /** Takes `count` bytes that the window holds. The bytes are only good until the next `fill`. */
  take(count: number): Buffer {
    const bytes = this.#window.subarray(this.#at, this.#at + count);
    this.#at += count;
    return bytes;
  }

  /** Passes over `count` bytes without reading them. */
  skip(count: number): void {
    if (count > this.remainingBytes) throw new GgufFault(`it ends at byte ${String(this.fileBytes)}, in the middle of its header`);
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

  /** A 64-bit count of things of at least `itemBytes` bytes each: more than the rest of the file can hold is a fault. */
  async count(itemBytes: number, what: string): Promise<number> {
    const announced = await this.u64();
    if (announced > BigInt(Math.floor(this.remainingBytes / itemBytes))) {
      throw new GgufFault(`it announces ${String(announced)} ${what}, more than its ${String(this.fileBytes)} bytes can hold`);
    }
    return Number(announced);
  }

  async u64(): Promise<bigint> {
    if (!this.holds(8)) await this.fill(8);
    return this.take(8).readBigUInt64LE(0);
  }

  /** A text of at most `bytesMax` bytes. */
  async text(bytesMax: number, what: string): Promise<string> {
    const length = await this.count(1, `bytes of ${what}`);
    if (length > bytesMax) throw new GgufFault(`${what} has ${String(length)} bytes; at most ${String(bytesMax)} are sensible`);
    if (!this.holds(length)) await this.fill(length);
    return this.take(length).toString('utf8');
  }

  async close(): Promise<void> {
    await this.file.close();
  }
}

function unopened(error: unknown): never {
  throw new GgufFault(openReason(error), { cause: error });
}

function openReason(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code === 'ENOENT') return 'there is no such file';
  if (code === 'EACCES' || code === 'EPERM') return 'it may not be read by this user';
  return error instanceof Error ? error.message : String(error);
}
