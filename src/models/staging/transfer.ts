/**
 * One try to complete a partial file from a hub. What is in it is trusted as a beginning only as far as the hash of the
 * whole will bear it out, and continued only by a server that proves where its bytes belong (B145):
 *   206, or 200 with a Content-Range, that begins where the file ends and knows the whole's size: appended;
 *   200 without one: the whole file, written from the beginning;
 *   416: what is there is judged by size and hash;
 *   any other range: asked for again, whole.
 */
import { closeSync, fsyncSync, ftruncateSync, openSync, fstatSync, readSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { finished } from 'node:stream';
import { LeaseholdError } from '../../../protocol/index.js';
import { exchange, reasonOf, unreachable, type Answer } from '../hub/exchange.js';
import { runningHash, type RunningHash } from './running-hash.js';
import { writeAll } from './hashing.js';
import { Control, type TransferOutcome, type TransferTask } from './task.js';

const pieceBytes = 1024 * 1024;
const stopCheckMs = 100;

export async function transfer(task: TransferTask): Promise<TransferOutcome> {
  const control = new Control(task.control);
  const file = openSync(task.path, 'r+');
  const stop = new AbortController();
  // Between bytes nobody looks at the counter.
  const watch = setInterval(() => { if (control.stopped) stop.abort(cancelled()); }, stopCheckMs);
  const attempt = new Transfer(task, file, control, stop.signal);
  try {
    return await attempt.run();
  } finally {
    attempt.close();
    clearInterval(watch);
    closeSync(file);
  }
}

class Transfer {
  #hash: RunningHash;
  #doneBytes = 0;

  constructor(private readonly task: TransferTask, private readonly file: number, private readonly control: Control, private readonly signal: AbortSignal) {
    this.#hash = this.#newHash();
  }

  close(): void {
    this.#hash.close();
  }

  async run(): Promise<TransferOutcome> {
    const { sizeBytes } = this.task;
    if (fstatSync(this.file).size > sizeBytes) ftruncateSync(this.file, 0);
    this.#takeIn();
    if (this.#doneBytes === sizeBytes && sizeBytes > 0) {
      const outcome = await this.#judge();
      if (outcome.kind === 'done') return outcome;
      this.#restart();
    }
    if (this.#doneBytes > 0) {
      const outcome = await this.#continue();
      if (outcome !== null) return outcome;
      this.#restart();
    }
    const answer = await this.#ask(null);
    return refused(answer) ?? await this.#receive(answer);
  }

  /** What is there already. */
  #takeIn(): void {
    const piece = Buffer.allocUnsafe(pieceBytes);
    for (;;) {
      if (this.control.stopped) throw cancelled();
      const read = readSync(this.file, piece, 0, pieceBytes, this.#doneBytes);
      if (read === 0) return;
      this.#count(piece.subarray(0, read));
    }
  }

  /** Null: the server did not continue, and the whole is to be asked for. */
  async #continue(): Promise<TransferOutcome | null> {
    const answer = await this.#ask(`bytes=${String(this.#doneBytes)}-`);
    const range = rangeOf(answer);
    const continues = range !== null && range.start === this.#doneBytes && range.total === this.task.sizeBytes;
    if ((answer.status === 206 || answer.status === 200) && continues) return this.#receive(answer);
    if (answer.status === 200 && range === null) {
      this.#restart();
      return this.#receive(answer);
    }
    const refusal = answer.status === 416 || answer.status === 206 || answer.status === 200 ? null : refused(answer);
    answer.body.destroy();
    return refusal;
  }

  async #ask(range: string | null): Promise<Answer> {
    const { url, authorization, answerMs, silentMs } = this.task;
    const answer = await exchange({ url, token: authorization === null ? null : { authorization }, headers: range === null ? {} : { range }, answerMs, silentMs, signal: this.signal });
    const encoding = answer.headers['content-encoding'];
    if (encoding === undefined || encoding === 'identity') return answer;
    answer.body.destroy();
    throw unreachable(url, `something on the way packs its bytes (${encoding})`);
  }

  async #receive(answer: Answer): Promise<TransferOutcome> {
    const { sizeBytes, url } = this.task;
    let seenBytes = this.#doneBytes;
    try {
      await eachPiece(answer.body, (piece) => {
        if (this.control.stopped) throw cancelled();
        seenBytes = this.#doneBytes + piece.length;
        if (seenBytes > sizeBytes) return false;
        writeAll(this.file, piece, this.#doneBytes);
        this.#count(piece);
        return true;
      });
    } catch (error) {
      if (this.signal.aborted || this.control.stopped) throw cancelled();
      const code = (error as NodeJS.ErrnoException).code ?? '';
      if (error instanceof LeaseholdError || /^E(NOSPC|DQUOT|IO|FBIG|ROFS)$/.test(code)) throw error;
      throw unreachable(url, reasonOf(error), error);
    }
    if (seenBytes > sizeBytes) {
      this.#restart();
      return { kind: 'wrong', what: 'long', actual: `at least ${String(seenBytes)} bytes`, expected: `${String(sizeBytes)} bytes` };
    }
    if (this.#doneBytes < sizeBytes) return { kind: 'wrong', what: 'short', actual: `${String(this.#doneBytes)} bytes`, expected: `${String(sizeBytes)} bytes` };
    const outcome = await this.#judge();
    if (outcome.kind !== 'done') this.#restart();
    return outcome;
  }

  /** After it, the bytes are on the disk. */
  async #judge(): Promise<TransferOutcome> {
    const hex = await this.#hash.digest(this.signal);
    const { hex: expected } = this.task.hash;
    if (hex !== expected) return { kind: 'wrong', what: 'hash', actual: hex, expected };
    try {
      fsyncSync(this.file);
    } catch (error) {
      // What could not be written is dropped from memory and reads as it never was: nobody may continue it.
      this.#restart();
      throw error;
    }
    return { kind: 'done', hex };
  }

  #restart(): void {
    ftruncateSync(this.file, 0);
    this.#hash.close();
    this.#hash = this.#newHash();
    this.#doneBytes = 0;
    this.control.doneBytes = 0;
  }

  #newHash(): RunningHash {
    const { path, hash, sizeBytes } = this.task;
    return runningHash(path, hash.algorithm, sizeBytes);
  }

  #count(piece: Uint8Array): void {
    this.#doneBytes += piece.length;
    this.control.doneBytes = this.#doneBytes;
    this.#hash.take(piece, this.#doneBytes);
  }
}

/**
 * Gives a body to `take` piece by piece, as it arrives, until it ends or `take` returns false. Nothing is waited for
 * between pieces: an iteration with a promise for each costs a twentieth of the whole transfer. Rejects with what `take`
 * throws, and with what breaks the body off.
 */
function eachPiece(body: IncomingMessage, take: (piece: Buffer) => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = (settle: () => void): void => {
      isOver = true;
      body.destroy();
      settle();
    };
    finished(body, (error) => {
      if (error === undefined || error === null) end(resolve);
      else end(() => { reject(error); });
    });
    body.on('data', (piece: Buffer) => {
      // What was read with it may still come after the end.
      if (isOver) return;
      try {
        if (!take(piece)) end(resolve);
      } catch (error) {
        end(() => { reject(error instanceof Error ? error : new Error(String(error))); });
      }
    });
  });
}

/** An answer that is no delivery, for the other side to judge; null for one that is. */
function refused(answer: Answer): TransferOutcome | null {
  if (answer.status === 200 || answer.status === 206) {
    const range = rangeOf(answer);
    if (range === null || range.start === 0) return null;
    answer.body.destroy();
    throw new LeaseholdError('hub_unreachable', { endpoint: 'the hub', reason: `asked for a whole file, it sends ${answer.headers['content-range'] ?? ''}` });
  }
  answer.body.destroy();
  const headers = Object.fromEntries(['x-error-code', 'retry-after'].flatMap((name) => (typeof answer.headers[name] === 'string' ? [[name, answer.headers[name]]] : [])));
  return { kind: 'refused', status: answer.status, headers };
}

/** `bytes 5-9/10`; null without one that can be read. An inverted one counts as one that begins nowhere. */
function rangeOf({ headers }: Answer): { readonly start: number; readonly total: number } | null {
  const said = headers['content-range'];
  if (said === undefined) return null;
  const [, start, end, total] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(said) ?? [];
  return start === undefined || Number(end) < Number(start) ? { start: -1, total: -1 } : { start: Number(start), total: Number(total) };
}

function cancelled(): LeaseholdError {
  return new LeaseholdError('request_cancelled', { what: 'Staging' });
}
