/**
 * Messages to frames and bodies back to values, by msgpackr: this is the one
 * file that knows it. Stateless: no records, no shared structures, so any
 * body can be read by itself and by any msgpack library (D28, B179).
 *
 * On the wire every integer is a msgpack integer. msgpackr writes those above
 * 2^32 as floats of the same nine bytes, so they are rewritten in place; other
 * languages then read bytes and times as what they are.
 */
import type * as Msgpackr from 'msgpackr';
import * as plain from 'msgpackr/pack';
import { checkBody, countEntries, doubledKey, integersInPlace } from '../body.js';
import { LeaseholdError } from '../errors.js';
import { frameHeaderBytes, writeLength } from '../frame.js';

/**
 * `msgpackr/pack` is the whole library without its streams and its native part,
 * which helps with long strings alone and costs every start ten milliseconds.
 * Its own declarations lose their types there; the entry's are the same.
 */
const { Packr, RESERVE_START_SPACE, Unpackr } = plain as unknown as typeof Msgpackr;

/** As large as the library's own; frames that find room in it share one. */
const slabBytes = 8 * 1024;
/** Of a key in an error. */
const keyCharactersShown = 128;

export interface Codec {
  /** A whole frame: length and body. Lone surrogates in strings become U+FFFD. Throws `input_invalid` for what has no place on the wire. */
  encode(message: object): Uint8Array;
  /** The value that `body` holds, or `frame_malformed`. Never throws; what it returns is made of plain maps, lists, strings, numbers, booleans and null. */
  decode(body: Uint8Array): unknown;
}

/** One for each connection: nothing that one peer sends touches the reading of another's frames. */
export function createCodec(): Codec {
  const packr = new Packr({ useRecords: false, variableMapSize: true });
  /**
   * For a large message the library makes its memory many times larger, goes on in it, and makes the next as large: a
   * frame of a hundred bytes that nobody reads would keep megabytes from being freed.
   */
  const alone = (frame: Uint8Array): Uint8Array => {
    packr.useBuffer(Buffer.allocUnsafeSlow(slabBytes));
    return Uint8Array.prototype.slice.call(frame);
  };
  // Integers as numbers: those above 2^53 - 1 are no safe integers and are refused by the field that holds them.
  const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'number' });
  return {
    encode(message) {
      let frame = packr.pack(message, RESERVE_START_SPACE + frameHeaderBytes);
      if (!integersInPlace(frame, frameHeaderBytes)) {
        frame = packr.pack(withoutUndefined(message), RESERVE_START_SPACE + frameHeaderBytes);
        if (!integersInPlace(frame, frameHeaderBytes)) throw new LeaseholdError('input_invalid', { field: messageType(message), reason: 'it holds something else than maps, lists, texts, numbers, true, false and null' });
      }
      writeLength(frame, frame.length - frameHeaderBytes);
      return frame.buffer.byteLength > slabBytes ? alone(frame) : frame;
    },
    decode(body) {
      const entries = checkBody(body);
      if (typeof entries === 'string') return new LeaseholdError('frame_malformed', { reason: entries });
      try {
        const value = unpackr.unpack(body) as unknown;
        return countEntries(value) === entries ? value : doubled(body) ?? value;
      } catch (error) {
        return LeaseholdError.from(error, 'frame_malformed');
      }
    },
  };
}

/** The library takes the last of two values under one key; a sender that means either is wrong. */
function doubled(body: Uint8Array): LeaseholdError | null {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.length);
  const key = doubledKey(body, (from, to) => {
    const name = bytes.toString('utf8', from, to);
    // The library gives the one the other's name.
    return name === '__proto__' ? '__proto_' : name;
  });
  if (key === null) return null;
  const field = key.slice(0, keyCharactersShown);
  return new LeaseholdError('frame_malformed', { reason: `the key ${JSON.stringify(field)} is twice in one map`, field });
}

function messageType(message: object): string {
  return 'type' in message && typeof message.type === 'string' ? message.type : 'a message';
}

/** A field set to undefined is a field left out; msgpackr would send it as an extension. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  if (typeof value !== 'object' || value === null || value instanceof Date) return value;
  const kept = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(kept.map(([name, inner]) => [name, withoutUndefined(inner)]));
}
