/** The world a command lives in: streams, environment, signals. Tests give one of their own. */
import { fstatSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { LeaseholdError } from '../../protocol/index.js';
import type { Output } from './terminal/output.js';

export type StopSignal = 'SIGINT' | 'SIGTERM' | 'SIGHUP';

/** A stream to write to that says when its reader is behind. */
export interface OutputStream extends Output {
  /** What the reader has not taken yet. */
  readonly unreadBytes: number;
  /** Resolves when the reader has taken what was written. */
  drained(): Promise<void>;
}

export interface Io {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** What is written to stdout and to stderr is seen at one place: a terminal, or a file that both go to. */
  readonly outputsMeet: boolean;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  /** Calls `listener` at every stop signal until the returned function is called. */
  onStop(listener: (signal: StopSignal) => void): () => void;
  /** Ends the process at once: for a second signal alone. */
  exitNow(code: number): void;
}

/** What a reader that stands still may be owed: more than any command says at once. */
const owedBytesMax = 32 * 1024 * 1024;

const stopSignals: readonly StopSignal[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** This process's own. */
export function processIo(): Io {
  return {
    stdout: outputStream(process.stdout, process.env),
    stderr: outputStream(process.stderr, process.env),
    outputsMeet: outputsMeet(),
    stdin: process.stdin,
    env: process.env,
    get cwd() { return workingFolder(); },
    onStop(listener) {
      for (const signal of stopSignals) process.on(signal, listener);
      return () => {
        for (const signal of stopSignals) process.off(signal, listener);
      };
    },
    exitNow: (code) => process.exit(code),
  };
}

function outputsMeet(): boolean {
  try {
    const [out, error] = [fstatSync(1), fstatSync(2)];
    return (process.stdout.isTTY && process.stderr.isTTY) || (out.dev === error.dev && out.ino === error.ino);
  } catch {
    // One of them is closed.
    return false;
  }
}

/** Asked for when it is needed: help is told in a folder that is gone, too. */
function workingFolder(): string {
  try {
    return process.cwd();
  } catch (error) {
    throw new LeaseholdError('input_invalid', { field: 'working folder', reason: 'it is not there any more' }, { cause: error, help: 'Go to a folder that is there, and try again.' });
  }
}

type StandardStream = Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number };

/** A stream that a slow reader delays, and never this process. */
export function outputStream(stream: StandardStream, env: NodeJS.ProcessEnv): OutputStream {
  unblock(stream);
  const write = bounded(stream);
  return {
    write,
    get isTerminal() { return stream.isTTY === true; },
    get canRedraw() { return stream.isTTY === true && env['TERM'] !== 'dumb'; },
    // A terminal that does not tell its size says 0.
    get columns() { return Math.max(20, (stream.columns ?? 0) || 80); },
    get rows() { return Math.max(5, (stream.rows ?? 0) || 24); },
    get unreadBytes() { return stream.writableLength; },
    drained: () => new Promise((resolve) => {
      if (!stream.writableNeedDrain) resolve();
      else stream.once('drain', resolve).once('close', resolve);
    }),
  };
}

/** Node waits for a terminal: under Ctrl-S all that this process does would stand still, the broker in it too. A pipe it does not wait for. */
function unblock(stream: StandardStream): void {
  const handle = (stream as { readonly _handle?: { setBlocking?(blocking: boolean): unknown } | null })._handle;
  if (stream.isTTY === true) handle?.setBlocking?.(false);
}

/** Writes until the reader is behind by `owedBytesMax`; what is dropped from there on is counted, and told of once it has caught up. */
function bounded(stream: StandardStream): (text: string) => void {
  let dropped = 0;
  let isJson = false;
  const tell = (): void => {
    const told = isJson ? JSON.stringify({ event: 'output_dropped', writes: dropped }) : `… what came here was left out ${String(dropped)} times: nothing was read for a while.`;
    dropped = 0;
    stream.write(`${told}\n`);
  };
  return (text) => {
    if (dropped === 0 && stream.writableLength <= owedBytesMax) {
      stream.write(text);
      return;
    }
    if (dropped === 0) {
      isJson = text.startsWith('{');
      stream.once('drain', tell);
    }
    dropped += 1;
  };
}
