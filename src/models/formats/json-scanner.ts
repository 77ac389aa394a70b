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

const digits = { zero: 0x30, nine: 0x39 } as const;
const literals: readonly (readonly [text: string, value: JsonValue, python: boolean])[] = [
  ['true', true, false], ['false', false, false], ['null', null, false], ['NaN', null, true], ['Infinity', null, true], ['-Infinity', null, true],
];
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export class JsonScanner {
  #at = 0;
  #depth = 0;
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
    this.#open('{');
    if (this.#taken('}')) return;
    do {
      const key = this.text();
      this.#expect(':');
      entry(key);
    } while (this.#taken(','));
    this.#close('}');
  }

  /** Calls `item` at each value of an array; it must consume the value. */
  array(item: (index: number) => void): void {
    this.#open('[');
    if (this.#taken(']')) return;
    let index = 0;
    do item(index++); while (this.#taken(','));
    this.#close(']');
  }

  text(): string {
    this.#space();
    const bytes = this.#bytes;
    if (bytes[this.#at] !== 0x22) throw this.#unexpected('a text');
    const from = ++this.#at;
    let plain = true;
    for (;;) {
      const byte = bytes[this.#at];
      if (byte === undefined) throw this.#unexpected('the end of a text');
      if (byte === 0x22) break;
      if (byte < 0x20) throw this.#unexpected('no control character in a text');
      if (byte === 0x5c) this.#at++;
      if (byte === 0x5c || byte >= 0x80) plain = false;
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
    let byte = this.#bytes[this.#at] ?? 0;
    for (; byte >= digits.zero && byte <= digits.nine; byte = this.#bytes[++this.#at] ?? 0) {
      value = value * 10 + byte - digits.zero;
      if (value > Number.MAX_SAFE_INTEGER) throw this.fault(`its JSON has a number at byte ${String(from)} that is beyond 2^53`);
    }
    const zeroed = this.#at > from + 1 && this.#bytes[from] === digits.zero;
    // A fraction, an exponent or a sign is no count.
    if (this.#at === from || zeroed || byte === 0x2e || byte === 0x45 || byte === 0x65) throw this.fault(`its JSON has no whole number at byte ${String(from)}`);
    return value;
  }

  /** Any value, as JSON.parse would have it; a key that stands there twice is a fault. */
  value(): JsonValue {
    const first = this.#peek();
    if (first === '"') return this.text();
    if (first === '[') {
      const items: JsonValue[] = [];
      this.array(() => void items.push(this.value()));
      return items;
    }
    if (first !== '{') return this.#scalar();
    const fields = new Map<string, JsonValue>();
    this.object((key) => {
      if (fields.has(key)) throw this.fault(`its JSON has the key ${JSON.stringify(key.slice(0, 200))} twice`);
      fields.set(key, this.value());
    });
    return Object.fromEntries(fields);
  }

  /** Nothing may follow but white space. */
  end(): void {
    this.#space();
    if (this.#at < this.#bytes.length) throw this.#unexpected('its end');
  }

  #scalar(): JsonValue {
    const from = this.#at;
    const end = this.#bytes.subarray(from, from + 400).findIndex((byte) => ' \t\r\n,]}:'.includes(String.fromCharCode(byte)));
    const word = this.#bytes.toString('latin1', from, end < 0 ? Math.min(from + 400, this.#bytes.length) : from + end);
    this.#at = from + word.length;
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

  #open(bracket: string): void {
    this.#expect(bracket);
    if (++this.#depth > (this.options.depthMax ?? 32)) throw this.fault(`its JSON is nested deeper than ${String(this.options.depthMax ?? 32)}`);
  }

  #close(bracket: string): void {
    this.#expect(bracket);
    this.#depth--;
  }

  #taken(char: string): boolean {
    if (this.#peek() !== char) return false;
    this.#at++;
    if (char === '}' || char === ']') this.#depth--;
    return true;
  }

  #expect(char: string): void {
    if (this.#peek() !== char) throw this.#unexpected(JSON.stringify(char));
    this.#at++;
  }

  #peek(): string {
    this.#space();
    const byte = this.#bytes[this.#at];
    return byte === undefined ? '' : String.fromCharCode(byte);
  }

  #space(): void {
    for (let byte = this.#bytes[this.#at]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;) byte = this.#bytes[++this.#at];
  }

  #unexpected(wanted: string): LeaseholdError {
    const found = this.#bytes[this.#at];
    const what = found === undefined ? 'it ends' : `0x${found.toString(16).padStart(2, '0')} stands`;
    return this.fault(`its JSON is broken: ${what} at byte ${String(this.#at)} where ${wanted} should be`);
  }
}
