/** A log's destination whose reader may stand still: a terminal under Ctrl-S, a pipe that nobody reads. The broker does not wait for one. */
import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs';

/** What a reader that stands still may be owed; what comes after it is dropped, and counted. */
const owedBytesMax = 1024 * 1024;
/** How long it is left alone before it is tried again. */
const patienceMs = 100;

export class PatientFile {
  readonly #fd: number;
  readonly #toldOf: (lostLines: number) => string;
  #owed: Buffer[] = [];
  #owedBytes = 0;
  #lostLines = 0;
  #waits = false;

  /** `fd` must be in non-blocking mode. `toldOf` makes the line that says how many were dropped. */
  constructor(fd: number, toldOf: (lostLines: number) => string) {
    this.#fd = fd;
    this.#toldOf = toldOf;
    // What a reader can take by then it still gets.
    process.once('exit', () => { this.#waits = false; this.#flush(); });
  }

  /** Throws where the destination fails, other than by being full. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#owedBytes + bytes.length > owedBytesMax) {
      this.#lostLines += 1;
      return;
    }
    this.#owed.push(bytes);
    this.#owedBytes += bytes.length;
    this.#flush();
  }

  #flush(): void {
    if (this.#waits) return;
    for (let first = this.#owed[0]; first !== undefined; first = this.#owed[0]) {
      const written = this.#take(first);
      if (written === null) return;
      this.#owedBytes -= written;
      if (written === first.length) this.#owed.shift();
      else this.#owed[0] = first.subarray(written);
      if (this.#owed.length > 0 || this.#lostLines === 0) continue;
      const told = Buffer.from(this.#toldOf(this.#lostLines));
      this.#lostLines = 0;
      this.#owed.push(told);
      this.#owedBytes += told.length;
    }
  }

  /** Bytes that it took; null: none for now, and it is tried again. */
  #take(bytes: Buffer): number | null {
    try {
      return writeSync(this.#fd, bytes);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EAGAIN') {
        this.#waits = true;
        setTimeout(() => { this.#tryAgain(); }, patienceMs).unref();
        return null;
      }
      this.#owed = [];
      this.#owedBytes = 0;
      throw error;
    }
  }

  #tryAgain(): void {
    this.#waits = false;
    try {
      this.#flush();
    } catch {
      // Whoever writes the next line hears of it.
    }
  }
}

/**
 * A descriptor of our own, in non-blocking mode, for what stands behind a path
 * or another descriptor; null where it is a file, which takes what it is given.
 */
export function openPatiently(destination: string | number): number | null {
  const path = typeof destination === 'string' ? destination : `/proc/self/fd/${String(destination)}`;
  try {
    const fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    if (!fstatSync(fd).isFile()) return fd;
    closeSync(fd);
    return null;
  } catch (error) {
    if (typeof destination === 'string') {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
    // A socket (the journal's) is not opened again; Node has put the stream's own descriptor into that mode.
    return standardStream(destination)?.writable === true && !fstatSync(destination).isFile() ? destination : null;
  }
}

function standardStream(fd: number): NodeJS.WriteStream | null {
  return fd === 1 ? process.stdout : fd === 2 ? process.stderr : null;
}
