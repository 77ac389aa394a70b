/** A world for commands that remembers what was written to it. */
import { PassThrough } from 'node:stream';
import type { Io, OutputStream, StopSignal } from '../../src/cli/io.js';

export interface FakeStream extends OutputStream {
  text: string;
}

export interface FakeIo extends Io {
  readonly stdout: FakeStream;
  readonly stderr: FakeStream;
  readonly exits: number[];
  /** As if the user pressed Ctrl-C, or a service manager sent the signal. */
  stop(signal: StopSignal): void;
  /** Whether a stop signal would be heard. */
  readonly listensForStop: boolean;
  /** Resolves once stdout or stderr holds the text. */
  wrote(text: string): Promise<void>;
}

export interface FakeIoOptions {
  readonly stdin?: string | null;
  readonly terminal?: boolean;
  readonly columns?: number;
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
}

/** `stdin: null` is a terminal that nobody types on. */
export function fakeIo({ stdin = '', terminal = false, columns = 80, env = {}, cwd = '/' }: FakeIoOptions = {}): FakeIo {
  const stopListeners = new Set<(signal: StopSignal) => void>();
  const waiting = new Set<() => void>();
  const stream = (): FakeStream => ({
    text: '',
    isTerminal: terminal,
    canRedraw: terminal && env['TERM'] !== 'dumb',
    columns,
    rows: 24,
    write(text) {
      this.text += text;
      for (const check of waiting) check();
    },
    unreadBytes: 0,
    drained: async () => undefined,
  });
  const input: PassThrough & { isTTY?: boolean } = new PassThrough();
  if (stdin === null) input.isTTY = true;
  else input.end(stdin);
  const io: FakeIo = {
    stdout: stream(),
    stderr: stream(),
    outputsMeet: terminal,
    stdin: input,
    // No file of the machine that runs the tests takes part.
    env: { LEASEHOLD_CONFIG: '', ...env },
    cwd,
    exits: [],
    onStop(listener) {
      stopListeners.add(listener);
      return () => { stopListeners.delete(listener); };
    },
    get listensForStop() { return stopListeners.size > 0; },
    exitNow(code) { this.exits.push(code); },
    stop(signal) { for (const listener of [...stopListeners]) listener(signal); },
    wrote: (text) => new Promise((resolve) => {
      const check = () => {
        if (!io.stdout.text.includes(text) && !io.stderr.text.includes(text)) return;
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      check();
    }),
  };
  return io;
}

/** The objects of a stream of JSON lines. */
export function jsonLines(text: string): Record<string, unknown>[] {
  return text.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as Record<string, unknown>);
}
