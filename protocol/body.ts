/**
 * What a body may be made of: one msgpack map of strings, integers, floats,
 * booleans, null, lists and maps with string keys. Checked before anything is
 * built from it, so that no body costs more memory than a small multiple of
 * its bytes, whatever it announces. Without I/O; one pass, no allocation.
 */

/** Bounds on the shape of a body. No message comes near them. */
export const bodyLimits = {
  /** Lists and maps inside each other. */
  depthMax: 16,
  /** Lists and maps in one body. */
  containersMax: 65_536,
  /** Entries of all maps in one body. */
  entriesMax: 262_144,
} as const;

/** What follows a token: so many bytes, or one of these. */
const forbidden = -1;
const text = -2;
const list = -3;
const map = -4;

const kinds = new Int8Array(256);
const fixed: readonly (readonly [first: number, last: number, kind: number])[] = [
  [0x80, 0x8f, map], [0x90, 0x9f, list], [0xa0, 0xbf, text],
  [0xc1, 0xc1, forbidden],
  // Byte strings and extensions: records, dates and the rest of what some libraries send mean nothing here.
  [0xc4, 0xc9, forbidden], [0xd4, 0xd8, forbidden],
  [0xca, 0xca, 4], [0xcb, 0xcb, 8],
  [0xcc, 0xcc, 1], [0xcd, 0xcd, 2], [0xce, 0xce, 4], [0xcf, 0xcf, 8],
  [0xd0, 0xd0, 1], [0xd1, 0xd1, 2], [0xd2, 0xd2, 4], [0xd3, 0xd3, 8],
  [0xd9, 0xdb, text], [0xdc, 0xdd, list], [0xde, 0xdf, map],
];
for (const [first, last, kind] of fixed) kinds.fill(kind, first, last + 1);

/** Values still to come at each depth; the check is synchronous and never nests, so one is enough. */
const left = new Float64Array(bodyLimits.depthMax + 1);
const inMap = new Uint8Array(bodyLimits.depthMax + 1);

/** Where a length or count that follows a token ends, and what it is; set by `readCount`. */
let countEnd = 0;

/**
 * The entries of all its maps when `body` is one whole value as described above, with nothing after it; else the reason it
 * is not. That no key is twice in a map is seen when it has been read: `countEntries` finds fewer then.
 */
export function checkBody(body: Uint8Array): number | string {
  const end = body.length;
  if (end === 0) return 'it is empty';
  let at = 0;
  let depth = 0;
  let containers = 0;
  let entries = 0;
  left[0] = 1;
  inMap[0] = 0;
  for (;;) {
    while (left[depth] === 0) {
      if (depth === 0) return at === end ? entries : at > end ? 'it ends early' : 'bytes follow its value';
      depth -= 1;
    }
    if (at >= end) return 'it ends early';
    const remaining = left[depth] as number;
    const token = body[at++] as number;
    const kind = kinds[token] as number;
    if (inMap[depth] === 1 && (remaining & 1) === 0 && kind !== text) return 'a key is no string';
    left[depth] = remaining - 1;
    if (kind >= 0) {
      at += kind;
    } else if (kind === text) {
      const bytes = readCount(body, token, at, 0x1f);
      at = countEnd + bytes;
      if (at > end) return 'it ends early';
      if (!isUtf8(body, countEnd, at)) return 'a string is not UTF-8';
    } else if (kind === forbidden) {
      return `token 0x${token.toString(16)} is not used here`;
    } else {
      const count = readCount(body, token, at, 0x0f);
      at = countEnd;
      if (count > end - at) return 'it announces more than it holds';
      if (++containers > bodyLimits.containersMax) return `it has more than ${String(bodyLimits.containersMax)} lists and maps`;
      if (kind === map && (entries += count) > bodyLimits.entriesMax) return `it has more than ${String(bodyLimits.entriesMax)} entries`;
      if (++depth > bodyLimits.depthMax) return `it is nested deeper than ${String(bodyLimits.depthMax)}`;
      left[depth] = kind === map ? count * 2 : count;
      inMap[depth] = kind === map ? 1 : 0;
    }
  }
}

/** The entries of all maps in a value that was read; as deep as `depthMax` allows. */
export function countEntries(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  let entries = 0;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const item = value[index] as unknown;
      if (typeof item === 'object') entries += countEntries(item);
    }
    return entries;
  }
  const map = value as Readonly<Record<string, unknown>>;
  // Every message passes here: no list is made. What a program gave to every object is counted, too, and has the body looked at again.
  for (const key in map) {
    entries += 1;
    const inner = map[key];
    if (typeof inner === 'object') entries += countEntries(inner);
  }
  return entries;
}

/**
 * The first key that is again in its map, of a body that `checkBody` takes; null where each is there once. `nameOf`: the
 * string in these bytes of it, as its reader names it.
 */
export function doubledKey(body: Uint8Array, nameOf: (from: number, to: number) => string): string | null {
  let at = 0;
  const textEnd = (token: number): number => readCount(body, token, at, 0x1f) + countEnd;
  const inValue = (): string | null => {
    const token = body[at++] as number;
    const kind = kinds[token] as number;
    if (kind >= 0) at += kind;
    if (kind === text) at = textEnd(token);
    if (kind !== list && kind !== map) return null;
    const count = readCount(body, token, at, 0x0f);
    at = countEnd;
    const names = new Set<string>();
    for (let index = 0; index < count; index++) {
      if (kind === map) {
        at = textEnd(body[at++] as number);
        const name = nameOf(countEnd, at);
        if (names.has(name)) return name;
        names.add(name);
      }
      const found = inValue();
      if (found !== null) return found;
    }
    return null;
  };
  return inValue();
}

/**
 * Rewrites, in place, each float that holds a safe integer as the msgpack
 * integer of the same nine bytes. False when the body holds an extension
 * token: the encoder was given something that has no place on the wire.
 */
export function integersInPlace(frame: Uint8Array, from: number): boolean {
  const end = frame.length;
  let at = from;
  while (at < end) {
    const token = frame[at++] as number;
    const kind = kinds[token] as number;
    if (kind >= 0) {
      if (token === 0xcb) integerInPlace(frame, at);
      at += kind;
    } else if (kind === text) {
      const bytes = readCount(frame, token, at, 0x1f);
      at = countEnd + bytes;
    } else if (kind === forbidden) {
      return false;
    } else {
      readCount(frame, token, at, 0x0f);
      at = countEnd;
    }
  }
  return true;
}

/** The length or count that `token` carries or that follows it; `countEnd` is set to where it ends. */
function readCount(bytes: Uint8Array, token: number, at: number, mask: number): number {
  if (token < 0xc0) {
    countEnd = at;
    return token & mask;
  }
  if (token === 0xd9) {
    countEnd = at + 1;
    return bytes[at] ?? 0;
  }
  if (token === 0xda || token === 0xdc || token === 0xde) {
    countEnd = at + 2;
    return ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
  }
  countEnd = at + 4;
  return (((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16) | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0;
}

const scratch = new DataView(new ArrayBuffer(8));

function integerInPlace(frame: Uint8Array, at: number): void {
  for (let index = 0; index < 8; index++) scratch.setUint8(index, frame[at + index] as number);
  const value = scratch.getFloat64(0);
  if (!Number.isSafeInteger(value)) return;
  frame[at - 1] = value < 0 ? 0xd3 : 0xcf;
  const high = Math.floor(value / 0x1_0000_0000);
  scratch.setInt32(0, high);
  scratch.setUint32(4, value - high * 0x1_0000_0000);
  for (let index = 0; index < 8; index++) frame[at + index] = scratch.getUint8(index);
}

/** Whole, shortest-form UTF-8 without surrogates, from `at` to `end`. */
function isUtf8(bytes: Uint8Array, at: number, end: number): boolean {
  while (at < end) {
    const lead = bytes[at++] as number;
    if (lead < 0x80) continue;
    const more = lead >= 0xc2 && lead < 0xe0 ? 1 : lead >= 0xe0 && lead < 0xf0 ? 2 : lead >= 0xf0 && lead < 0xf5 ? 3 : 0;
    if (more === 0 || at + more > end) return false;
    const second = bytes[at] as number;
    if (lead === 0xe0 && second < 0xa0) return false;
    if (lead === 0xed && second > 0x9f) return false;
    if (lead === 0xf0 && second < 0x90) return false;
    if (lead === 0xf4 && second > 0x8f) return false;
    for (let index = 0; index < more; index++) if (((bytes[at + index] as number) & 0xc0) !== 0x80) return false;
    at += more;
  }
  return true;
}
