/** A worker's output: always read, so that it never blocks on a full pipe (B94), kept in a bounded tail, handed on line by line. */
import type { Readable } from 'node:stream';

export interface OutputLimits {
  /** Lines kept. */
  readonly outputLinesMax: number;
  /** Bytes of one line; the rest of it is dropped and counted. */
  readonly outputLineBytesMax: number;
  /** Lines handed on in one second; the others are kept in their turn and counted, so that a flood cannot hold up our loop. */
  readonly outputLinesPerSecondMax: number;
}

const newline = 0x0a;

/** A flood is read at this pace and no faster (25 MiB/s a stream): it slows the flooder down, and leaves our loop to others. */
const sliceMs = 20;
const sliceBytesMax = 512 * 1_024;

/** The tail that both streams of one process share. */
export class OutputTail {
  readonly #limits: OutputLimits;
  readonly #hide: (line: string) => string;
  readonly #lines: string[] = [];

  /** Every occurrence of a secret is replaced before a line is kept or handed on. */
  constructor(limits: OutputLimits, secrets: readonly string[]) {
    this.#limits = limits;
    this.#hide = (line) => secrets.reduce((text, secret) => text.replaceAll(secret, '[hidden]'), line);
  }

  /** The last lines, oldest first. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  /** Reads `stream` to its end. Resolves when it has ended, by itself or destroyed. */
  drain(stream: Readable, onLine: (line: string) => void): Promise<void> {
    const splitter = new LineSplitter(this.#limits, (raw) => this.#keep(raw), onLine);
    let sliceStartedMs = 0;
    let sliceBytes = 0;
    return new Promise((resolve) => {
      stream.on('data', (chunk: Buffer) => {
        splitter.take(chunk);
        const nowMs = performance.now();
        if (nowMs - sliceStartedMs >= sliceMs) {
          sliceStartedMs = nowMs;
          sliceBytes = 0;
        }
        sliceBytes += chunk.length;
        if (sliceBytes < sliceBytesMax || stream.isPaused()) return;
        stream.pause();
        setTimeout(() => stream.resume(), sliceMs);
      });
      // A broken pipe ends the stream; the process's own end says why.
      stream.on('error', () => undefined);
      stream.on('close', () => {
        splitter.end();
        resolve();
      });
    });
  }

  #keep(raw: string): string {
    const line = this.#hide(raw);
    this.#lines.push(line);
    if (this.#lines.length > this.#limits.outputLinesMax) this.#lines.shift();
    return line;
  }
}

class LineSplitter {
  readonly #limits: OutputLimits;
  readonly #keep: (raw: string) => string;
  readonly #onLine: (line: string) => void;
  /** The beginning of a line whose end has not come, at most outputLineBytesMax. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  #cutBytes = 0;
  #secondStartedMs = 0;
  #handedThisSecond = 0;
  #unhandedLines = 0;

  constructor(limits: OutputLimits, keep: (raw: string) => string, onLine: (line: string) => void) {
    this.#limits = limits;
    this.#keep = keep;
    this.#onLine = onLine;
  }

  take(chunk: Buffer): void {
    this.#startSecond();
    let from = 0;
    let skipped = false;
    while (from < chunk.length) {
      if (!skipped && this.#handedThisSecond >= this.#limits.outputLinesPerSecondMax) {
        from = this.#skipFlood(chunk, from);
        skipped = true;
      }
      const end = chunk.indexOf(newline, from);
      if (end === -1) break;
      this.#extend(chunk.subarray(from, end));
      this.#finishLine();
      from = end + 1;
    }
    this.#extend(chunk.subarray(from));
  }

  /** The last line of a process seldom ends in a newline, and is the one that tells why it ended. */
  end(): void {
    if (this.#partialBytes > 0 || this.#cutBytes > 0) this.#finishLine();
    this.#tellUnhanded();
  }

  /** In a flood only as many lines of a chunk are looked at as the tail can keep; returns where those begin. */
  #skipFlood(chunk: Buffer, from: number): number {
    let start = chunk.length;
    for (let kept = 0; kept <= this.#limits.outputLinesMax; kept++) {
      const before = start === 0 ? -1 : chunk.lastIndexOf(newline, start - 1);
      if (before < from) return from;
      start = before;
    }
    this.#partial = [];
    this.#partialBytes = 0;
    this.#cutBytes = 0;
    for (let at = from; at <= start; at++) if (chunk[at] === newline) this.#unhandedLines += 1;
    return start + 1;
  }

  #extend(piece: Buffer): void {
    const room = this.#limits.outputLineBytesMax - this.#partialBytes;
    // A copy: a slice would keep the whole chunk alive for one short line.
    if (room > 0 && piece.length > 0) this.#partial.push(Buffer.from(piece.subarray(0, room)));
    const taken = Math.min(piece.length, Math.max(0, room));
    this.#partialBytes += taken;
    this.#cutBytes += piece.length - taken;
  }

  #finishLine(): void {
    const text = Buffer.concat(this.#partial).toString('utf8').replace(/\r$/, '');
    const line = this.#keep(this.#cutBytes > 0 ? `${text}… [${this.#cutBytes} bytes cut]` : text);
    this.#partial = [];
    this.#partialBytes = 0;
    this.#cutBytes = 0;
    if (this.#handedThisSecond < this.#limits.outputLinesPerSecondMax) {
      this.#handedThisSecond += 1;
      this.#onLine(line);
    } else {
      this.#unhandedLines += 1;
    }
  }

  #startSecond(): void {
    const nowMs = performance.now();
    if (nowMs - this.#secondStartedMs < 1_000) return;
    this.#secondStartedMs = nowMs;
    this.#handedThisSecond = 0;
    this.#tellUnhanded();
  }

  #tellUnhanded(): void {
    if (this.#unhandedLines === 0) return;
    const count = this.#unhandedLines;
    this.#unhandedLines = 0;
    this.#onLine(`[${count} lines more than ${this.#limits.outputLinesPerSecondMax} a second are not shown]`);
  }
}
