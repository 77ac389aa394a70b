/**
 * Framing, without I/O: a frame is a 4-byte big-endian length and so many
 * bytes of body. The decoder takes chunks as they come, cut anywhere, and
 * gives bodies back whole and in order.
 *
 * What it holds is bounded by what was announced and by what has arrived: a
 * length of 4 GiB is refused when its four bytes are there, and an announced
 * 8 MiB costs nothing until its bytes come.
 */
import { LeaseholdError } from './errors.js';

/** Bytes of the length in front of each body. */
export const frameHeaderBytes = 4;

/** The first room for a body that arrives in pieces; it doubles as bytes come. */
const firstRoomBytes = 1_024;

/** How a stream of frames ended (R64): between two frames, or in the middle of one. */
export type FrameEnd =
  | { readonly kind: 'clean' }
  | { readonly kind: 'mid_frame'; readonly receivedBytes: number; readonly announcedBytes: number | null };

export class FrameDecoder {
  #bodyBytesMax: number;
  #fault: LeaseholdError | null = null;
  /** Bytes of a length that has not come whole. */
  readonly #header = new Uint8Array(frameHeaderBytes);
  #headerBytes = 0;
  /** Announced length of the body being received; -1 between frames. */
  #announced = -1;
  /** The part of the body that has come, when it did not come in one chunk. */
  #held: Uint8Array | null = null;
  #heldBytes = 0;

  /** `bodyBytesMax`: a longer announced body is a fault. */
  constructor(bodyBytesMax: number) {
    this.#bodyBytesMax = bodyBytesMax;
  }

  /** Set once a length above the limit was announced: nothing after it can be read. */
  get fault(): LeaseholdError | null {
    return this.#fault;
  }

  /** Applies to the next length that is read; a frame already announced is not judged again. */
  setBodyBytesMax(bodyBytesMax: number): void {
    this.#bodyBytesMax = bodyBytesMax;
  }

  /**
   * The bodies that `chunk` completes, in order. A body that lies whole in
   * `chunk` is a view of it, not a copy. Check `fault` afterwards: bodies that
   * came before a bad length are still given.
   */
  push(chunk: Uint8Array): Uint8Array[] {
    const bodies: Uint8Array[] = [];
    let at = 0;
    while (at < chunk.length && this.#fault === null) {
      if (this.#announced < 0) at = this.#readHeader(chunk, at);
      else at = this.#readBody(chunk, at, bodies);
      // A body of no bytes is complete with its header.
      if (this.#announced === 0) this.#readBody(chunk, at, bodies);
    }
    return bodies;
  }

  /** To be asked at the end of the stream. */
  end(): FrameEnd {
    if (this.#announced < 0 && this.#headerBytes === 0) return { kind: 'clean' };
    return this.#announced < 0
      ? { kind: 'mid_frame', receivedBytes: this.#headerBytes, announcedBytes: null }
      : { kind: 'mid_frame', receivedBytes: frameHeaderBytes + this.#heldBytes, announcedBytes: this.#announced };
  }

  /** Memory kept for a frame that is not whole yet. */
  get heldBytes(): number {
    return this.#held?.length ?? 0;
  }

  /** Returns where reading goes on; sets the announced length, or the fault. */
  #readHeader(chunk: Uint8Array, at: number): number {
    if (this.#headerBytes === 0 && chunk.length - at >= frameHeaderBytes) {
      this.#announce(readLength(chunk, at));
      return at + frameHeaderBytes;
    }
    while (at < chunk.length && this.#headerBytes < frameHeaderBytes) this.#header[this.#headerBytes++] = chunk[at++] ?? 0;
    if (this.#headerBytes === frameHeaderBytes) {
      this.#headerBytes = 0;
      this.#announce(readLength(this.#header, 0));
    }
    return at;
  }

  #announce(bytes: number): void {
    if (bytes > this.#bodyBytesMax) {
      this.#fault = new LeaseholdError('frame_too_large', { bytes, limitBytes: this.#bodyBytesMax });
    } else {
      this.#announced = bytes;
    }
  }

  #readBody(chunk: Uint8Array, at: number, bodies: Uint8Array[]): number {
    const wanted = this.#announced - this.#heldBytes;
    const end = Math.min(chunk.length, at + wanted);
    if (this.#held === null && end - at === wanted) {
      bodies.push(chunk.subarray(at, end));
      this.#announced = -1;
      return end;
    }
    const held = this.#roomFor(end - at);
    held.set(chunk.subarray(at, end), this.#heldBytes);
    this.#heldBytes += end - at;
    if (this.#heldBytes === this.#announced) {
      bodies.push(held.length === this.#heldBytes ? held : held.subarray(0, this.#heldBytes));
      this.#held = null;
      this.#heldBytes = 0;
      this.#announced = -1;
    }
    return end;
  }

  /** A buffer that holds what has come and `bytes` more: at most twice that, and never above what was announced. */
  #roomFor(bytes: number): Uint8Array {
    const needed = this.#heldBytes + bytes;
    if (this.#held !== null && this.#held.length >= needed) return this.#held;
    const room = new Uint8Array(Math.min(this.#announced, Math.max(firstRoomBytes, needed, (this.#held?.length ?? 0) * 2)));
    if (this.#held !== null) room.set(this.#held.subarray(0, this.#heldBytes));
    this.#held = room;
    return room;
  }
}

/** Writes a body's length into the first four bytes of `frame`. */
export function writeLength(frame: Uint8Array, bodyBytes: number): void {
  frame[0] = bodyBytes >>> 24;
  frame[1] = bodyBytes >>> 16;
  frame[2] = bodyBytes >>> 8;
  frame[3] = bodyBytes;
}

/** `body` with its length in front: a whole frame. Copies; the codec writes lengths in place instead. */
export function frameOf(body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(frameHeaderBytes + body.length);
  writeLength(frame, body.length);
  frame.set(body, frameHeaderBytes);
  return frame;
}

function readLength(bytes: Uint8Array, at: number): number {
  return (((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16) | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0;
}
