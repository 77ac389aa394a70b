/** Messages into a stream, within two bounds: what one frame may hold, and what may wait for a peer that does not read. */
import { LeaseholdError } from '../errors.js';
import { frameHeaderBytes } from '../frame.js';
import type { Codec } from './codec.js';
import type { HeldTotal } from './held-total.js';
import type { ByteStream } from './stream.js';

export class FrameWriter {
  readonly #stream: ByteStream;
  readonly #codec: Codec;
  readonly #outgoingBytesMax: number;
  readonly #total: HeldTotal | undefined;
  #bodyBytesMax: number;

  constructor(stream: ByteStream, codec: Codec, limits: { readonly bodyBytesMax: number; readonly outgoingBytesMax: number }, total?: HeldTotal) {
    this.#stream = stream;
    this.#codec = codec;
    this.#total = total;
    this.#bodyBytesMax = limits.bodyBytesMax;
    this.#outgoingBytesMax = limits.outgoingBytesMax;
  }

  /** What the peer takes, once it has said so. */
  setBodyBytesMax(bytes: number): void {
    this.#bodyBytesMax = bytes;
  }

  /**
   * Null when the frame is on its way; else why nothing was written:
   * `frame_too_large` (this message, the connection is well), `peer_too_slow`
   * (the connection is not), `internal` (no message at all). Never throws.
   */
  write(message: object): LeaseholdError | null {
    let frame: Uint8Array;
    try {
      frame = this.#codec.encode(message);
    } catch (error) {
      return LeaseholdError.from(error, 'internal');
    }
    const bodyBytes = frame.length - frameHeaderBytes;
    if (bodyBytes > this.#bodyBytesMax) return new LeaseholdError('frame_too_large', { bytes: bodyBytes, limitBytes: this.#bodyBytesMax });
    const bytes = this.#stream.unsentBytes + frame.length;
    if (bytes > this.#outgoingBytesMax) return new LeaseholdError('peer_too_slow', { bytes, limitBytes: this.#outgoingBytesMax });
    this.#stream.write(frame);
    this.#total?.took(frame.length);
    return null;
  }
}
