/** A child process that may die of what it is asked: its messages, or in words how it ended. */
import { durationText } from '../../protocol/index.js';
import { fork } from 'node:child_process';

/** How a child ended: "it was ended by SIGABRT: GGML_ASSERT(…) failed". */
export class ChildDeath {
  /** `started` false: there never was one, which says nothing about what it was to be asked. */
  constructor(readonly how: string, readonly started = true) {}
}

export interface RiskyChild {
  /** Its next message, or how it ended, or that it did not answer in time. */
  next(timeoutMs: number): Promise<unknown>;
  /** Resolves when it is gone. */
  kill(): Promise<void>;
  /** What of its output says why, all of it once it is gone. */
  words(): string;
}

const outputBytesMax = 16 * 1024;

/** Starts `program` (a compiled module) with an IPC channel. A child that cannot be started is one that died. */
export function startChild(program: string, args: readonly string[]): RiskyChild {
  // An assertion of llama.cpp would call a debugger for its last words.
  const env = { ...process.env, GGML_NO_BACKTRACE: '1' };
  const child = fork(program, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], execArgv: [], env });
  const waiting: unknown[] = [];
  let deliver: ((message: unknown) => void) | null = null;
  child.on('message', (message) => {
    if (deliver === null) waiting.push(message);
    else deliver(message);
  });
  let output = '';
  const take = (chunk: Buffer): void => {
    output = (output + chunk.toString('utf8')).slice(-outputBytesMax);
  };
  child.stdout?.on('data', take);
  child.stderr?.on('data', take);
  // `close`, not `exit`: by then its last words have been read.
  const ended = new Promise<ChildDeath>((resolve) => {
    child.once('close', (code, signal) => {
      const how = signal === null ? `it ended with code ${String(code)}` : `it was ended by ${signal}`;
      resolve(new ChildDeath([how, lastWords(output)].filter((text) => text !== '').join(': ')));
    });
    child.once('error', (error) => resolve(new ChildDeath(`it could not be started: ${error.message}`, false)));
  });
  return {
    next: (timeoutMs) => firstOf(waiting, ended, timeoutMs, (listener) => { deliver = listener; }),
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    words: () => lastWords(output),
  };
}

async function firstOf(waiting: unknown[], ended: Promise<ChildDeath>, timeoutMs: number, listen: (listener: ((message: unknown) => void) | null) => void): Promise<unknown> {
  if (waiting.length > 0) return waiting.shift();
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<ChildDeath>((resolve) => {
    timer = setTimeout(() => resolve(new ChildDeath(`it did not answer within ${durationText(timeoutMs)}`)), timeoutMs);
  });
  const message = new Promise<unknown>((resolve) => listen(resolve));
  try {
    return await Promise.race([message, ended, timeout]);
  } finally {
    clearTimeout(timer);
    listen(null);
  }
}

/** The lines that say why: an assertion, an error. */
function lastWords(output: string): string {
  const telling = output.split('\n').map((line) => line.trim()).filter((line) => /assert|abort|error|unsupported|terminate|what\(\)|fail/i.test(line));
  // Where llama.cpp was built is nobody's business here.
  return telling.slice(-3).join('; ').replace(/\/\S*\/llama\.cpp\//g, '').slice(-500);
}
