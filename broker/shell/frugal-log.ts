/** A log that nobody fills: of each kind so many lines in a minute, and the rest is counted and told once, when the minute is over. */
import type { Log, LogLevel } from './log.js';

interface Kind {
  readonly what: string;
  written: number;
  leftOut: number;
}

const minuteMs = 60_000;
/** Kinds with a count of their own; those beyond share one. */
const kindsMax = 512;
/** A kind is told by no more of its first message than this. */
const whatCharactersMax = 200;

export class FrugalLog implements Log {
  readonly #log: Log;
  readonly #linesMax: number;
  readonly #periodMs: number;
  readonly #kinds = new Map<string, Kind>();
  #timer: NodeJS.Timeout | null = null;

  constructor(log: Log, linesMax: number, periodMs = minuteMs) {
    this.#log = log;
    this.#linesMax = linesMax;
    this.#periodMs = periodMs;
  }

  /** As it comes: who turns it on wants all of it. */
  debug(fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#log.debug(fields, message);
  }

  info(fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#write('info', fields, message);
  }

  warn(fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#write('warn', fields, message);
  }

  error(fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#write('error', fields, message);
  }

  /** The minute is over, or the broker ends: what was left out is told. */
  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const kinds = [...this.#kinds.values()];
    this.#kinds.clear();
    for (const { what, leftOut } of kinds) if (leftOut > 0) this.#log.warn({ linesLeftOut: leftOut, what }, `${String(leftOut)} more lines of this kind left out: over ${String(this.#linesMax)} in a minute`);
  }

  #write(level: LogLevel, fields: Readonly<Record<string, unknown>>, message: string): void {
    const kind = this.#kindOf(level, typeof fields['code'] === 'string' ? fields['code'] : message);
    if (kind.written === this.#linesMax) {
      kind.leftOut += 1;
      return;
    }
    kind.written += 1;
    this.#log[level](fields, message);
  }

  /** An error's message names what was asked for, its code does not: by the code all of them are one kind. */
  #kindOf(level: LogLevel, named: string): Kind {
    const what = named.slice(0, whatCharactersMax);
    const own = `${level} ${what}`;
    const key = this.#kinds.has(own) || this.#kinds.size < kindsMax ? own : '';
    const kind = this.#kinds.get(key) ?? { what: key === '' ? 'of many kinds' : what, written: 0, leftOut: 0 };
    this.#kinds.set(key, kind);
    this.#timer ??= setTimeout(() => { this.flush(); }, this.#periodMs).unref();
    return kind;
  }
}
