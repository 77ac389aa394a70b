/**
 * Reads JSON from bytes that nobody vouches for. Unlike JSON.parse it sees a key that stands there twice and a number
 * that no double holds, goes no deeper than told, and can pass over what is not wanted.
 */
import type { LeaseholdError } from '../../../protocol/index.js';

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };

export interface ScanOptions {
  readonly depthMax?: number;
  /** `NaN`, `Infinity` and `-Infinity` outside texts become null: Python writes them (B167). */
  readonly pythonLiterals?: boolean;
}

/** Bytes that JSON is made of. Compared as numbers: a hostile file is a million of them. */
const byte = { quote: 0x22, comma: 0x2c, dot: 0x2e, zero: 0x30, nine: 0x39, colon: 0x3a, bigE: 0x45, listOpen: 0x5b, backslash: 0x5c, listClose: 0x5d, smallE: 0x65, open: 0x7b, close: 0x7d } as const;
/** Of values that are kept: ten times what the largest configuration in use has. */
const valuesMax = 100_000;
/** Of one object that is kept. */
const keysMax = 32_768;
/** No number and no literal is longer. */
const scalarBytesMax = 400;
const literals: readonly (readonly [text: string, value: JsonValue, python: boolean])[] = [
  ['true', true, false], ['false', false, false], ['null', null, false], ['NaN', null, true], ['Infinity', null, true], ['-Infinity', null, true],
];
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export class JsonScanner {
  #at = 0;
  #depth = 0;
  #values = 0;
  readonly #bytes: Buffer;

  /** `fault` makes the error for a reason that follows "… cannot be used: ". */
  constructor(bytes: Uint8Array, private readonly fault: (reason: string) => LeaseholdError, private readonly options: ScanOptions = {}) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get offset(): number {
    return this.#at;
  }

  /** Calls `entry` at each value of an object; it must consume the value. Keys that stand there twice are `entry`'s to notice. */
  object(entry: (key: string) => void): void {
    this.#open(byte.open);
    if (this.#taken(byte.close)) return;
    do {
      const key = this.text();
      this.#expect(byte.colon);
      entry(key);
    } while (this.#taken(byte.comma));
    this.#close(byte.close);
  }

  /** Calls `item` at each value of an array; it must consume the value. */
  array(item: (index: number) => void): void {
    this.#open(byte.listOpen);
    if (this.#taken(byte.listClose)) return;
    let index = 0;
    do item(index++); while (this.#taken(byte.comma));
    this.#close(byte.listClose);
  }

  text(): string {
    this.#space();
    const bytes = this.#bytes;
    if (bytes[this.#at] !== byte.quote) throw this.#unexpected('a text');
    const from = ++this.#at;
    let plain = true;
    for (;;) {
      const unit = bytes[this.#at];
      if (unit === undefined) throw this.#unexpected('the end of a text');
      if (unit === byte.quote) break;
      if (unit < 0x20) throw this.#unexpected('no control character in a text');
      if (unit === byte.backslash) this.#at++;
      if (unit === byte.backslash || unit >= 0x80) plain = false;
      this.#at++;
    }
    const raw = bytes.subarray(from, this.#at++);
    if (plain) return raw.toString('latin1');
    try {
      return JSON.parse(`"${utf8.decode(raw)}"`) as string;
    } catch {
      throw this.fault(`its JSON has a broken text at byte ${String(from - 1)}`);
    }
  }

  /** A whole number from 0 that a double holds exactly. */
  count(): number {
    this.#space();
    const from = this.#at;
    let value = 0;
    let unit = this.#bytes[this.#at] ?? 0;
    for (; unit >= byte.zero && unit <= byte.nine; unit = this.#bytes[++this.#at] ?? 0) {
      value = value * 10 + unit - byte.zero;
      if (value > Number.MAX_SAFE_INTEGER) throw this.fault(`its JSON has a number at byte ${String(from)} that is beyond 2^53`);
    }
    const zeroed = this.#at > from + 1 && this.#bytes[from] === byte.zero;
    // A fraction, an exponent or a sign is no count.
    if (this.#at === from || zeroed || unit === byte.dot || unit === byte.bigE || unit === byte.smallE) throw this.fault(`its JSON has no whole number at byte ${String(from)}`);
    return value;
  }

  /** Any value, as JSON.parse would have it; a key that stands there twice is a fault, and so are more values than anything needs. */
  value(): JsonValue {
    if (++this.#values > valuesMax) throw this.fault(`its JSON has more than ${String(valuesMax)} values`);
    const first = this.#peek();
    if (first === byte.listOpen) {
      const items: JsonValue[] = [];
      this.array(() => void items.push(this.value()));
      return items;
    }
    if (first !== byte.open) return this.scalar();
    const fields = new Map<string, JsonValue>();
    this.object((key) => {
      if (fields.has(key)) throw this.fault(`its JSON has the key ${JSON.stringify(key.slice(0, 200))} twice`);
      if (fields.size >= keysMax) throw this.fault(`its JSON has an object of more than ${String(keysMax)} keys`);
      fields.set(key, this.value());
    });
    return Object.fromEntries(fields);
  }

  /** What comes next: something for `object`, for `array`, or for `scalar`. */
  next(): 'object' | 'array' | 'scalar' {
    const first = this.#peek();
    return first === byte.open ? 'object' : first === byte.listOpen ? 'array' : 'scalar';
  }

  /** A text, a number, a truth or null. */
  scalar(): JsonValue {
    return this.#peek() === byte.quote ? this.text() : this.#scalar();
  }

  /** Nothing may follow but white space. */
  end(): void {
    this.#space();
    if (this.#at < this.#bytes.length) throw this.#unexpected('its end');
  }

  #scalar(): JsonValue {
    const from = this.#at;
    let end = from;
    for (const most = Math.min(from + scalarBytesMax, this.#bytes.length); end < most && !endsScalar(this.#bytes[end] ?? 0); end++);
    const digit = (this.#bytes[from] ?? 0) - byte.zero;
    this.#at = end;
    if (end === from + 1 && digit >= 0 && digit <= 9) return digit;
    const word = this.#bytes.toString('latin1', from, end);
    const literal = literals.find(([text, , python]) => text === word && (!python || this.options.pythonLiterals === true));
    if (literal !== undefined) return literal[1];
    if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(word)) {
      this.#at = from;
      throw this.#unexpected('a value');
    }
    const value = Number(word);
    if (!Number.isFinite(value)) throw this.fault(`its JSON has a number at byte ${String(from)} that is beyond any double`);
    return value;
  }

  #open(bracket: number): void {
    this.#expect(bracket);
    if (++this.#depth > (this.options.depthMax ?? 32)) throw this.fault(`its JSON is nested deeper than ${String(this.options.depthMax ?? 32)}`);
  }

  #close(bracket: number): void {
    this.#expect(bracket);
    this.#depth--;
  }

  #taken(unit: number): boolean {
    if (this.#peek() !== unit) return false;
    this.#at++;
    if (unit === byte.close || unit === byte.listClose) this.#depth--;
    return true;
  }

  #expect(unit: number): void {
    if (this.#peek() !== unit) throw this.#unexpected(JSON.stringify(String.fromCharCode(unit)));
    this.#at++;
  }

  /** What stands next; undefined at the end. */
  #peek(): number | undefined {
    this.#space();
    return this.#bytes[this.#at];
  }

  #space(): void {
    while (isSpace(this.#bytes[this.#at] ?? 0)) this.#at++;
  }

  #unexpected(wanted: string): LeaseholdError {
    const found = this.#bytes[this.#at];
    const what = found === undefined ? 'it ends' : `0x${found.toString(16).padStart(2, '0')} stands`;
    return this.fault(`its JSON is broken: ${what} at byte ${String(this.#at)} where ${wanted} should be`);
  }
}

function isSpace(unit: number): boolean {
  return unit === 0x20 || unit === 0x0a || unit === 0x0d || unit === 0x09;
}

function endsScalar(unit: number): boolean {
  return isSpace(unit) || unit === byte.comma || unit === byte.listClose || unit === byte.close || unit === byte.colon;
}
