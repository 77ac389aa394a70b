/** One life of the NVML helper: started, asked, and killed when an answer does not come in time. */
import { durationText } from '../../protocol/index.js';
import { spawn, type ChildProcess } from 'node:child_process';
import type { MissingReading } from '../core/events.js';
import { startDeadline } from './deadline.js';
import type { HelperMessage, HelperRequest } from './nvml-messages.js';

/** Distributes over the union, so that each question keeps its own fields. */
export type Question = HelperRequest extends infer R ? (R extends HelperRequest ? Omit<R, 'id'> : never) : never;

export type HelperOutcome =
  | { readonly kind: 'answered'; readonly message: HelperMessage }
  | { readonly kind: 'missing'; readonly reading: MissingReading; readonly reason: string };

export interface HelperCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

interface OpenQuestion {
  readonly settle: (outcome: HelperOutcome) => void;
  readonly cancelDeadline: () => void;
}

/** A helper that writes more than this without a line's end has lost its mind. */
const lineBytesMax = 4 * 1024 * 1024;
const stderrBytesMax = 2_048;

export class HelperProcess {
  /** Settles once: ready or unavailable, or why neither was said. */
  readonly opened: Promise<HelperOutcome>;
  readonly #child: ChildProcess;
  readonly #open = new Map<number, OpenQuestion>();
  readonly #ended: (reason: string) => void;
  #settleOpened: (outcome: HelperOutcome) => void = () => undefined;
  #cancelStart: () => void;
  #lastId = 0;
  #text = '';
  #stderr = '';
  #over = false;
  #gone = false;

  /** `ended` is called once, when this helper can answer no more, with the reason; not after `close`. */
  constructor(start: HelperCommand, startTimeoutMs: number, ended: (reason: string) => void) {
    this.#ended = ended;
    this.opened = new Promise((resolve) => {
      this.#settleOpened = resolve;
    });
    this.#cancelStart = startDeadline(startTimeoutMs, () => this.#fail('timed_out', `no word from the NVML helper within ${durationText(startTimeoutMs)} of its start`));
    // Detached: an interrupt from the terminal is for us; the helper ends with its stdin.
    this.#child = spawn(start.command, start.args, { env: start.env, stdio: ['pipe', 'pipe', 'pipe'], detached: true, windowsHide: true });
    this.#listen();
  }

  /** False from the moment its process is reaped; a helper stuck in the kernel survives its SIGKILL. */
  get alive(): boolean {
    return !this.#gone;
  }

  /** Asks and waits at most `timeoutMs`; past that the helper is killed, and with it every question still open. */
  ask(question: Question, timeoutMs: number): Promise<HelperOutcome> {
    if (this.#over) return Promise.resolve({ kind: 'missing', reading: 'failed', reason: 'the NVML helper has ended' });
    const id = ++this.#lastId;
    return new Promise((settle) => {
      const cancelDeadline = startDeadline(timeoutMs, () => this.#fail('timed_out', `no answer from NVML within ${durationText(timeoutMs)}; its helper was killed`));
      this.#open.set(id, { settle, cancelDeadline });
      this.#child.stdin?.write(`${JSON.stringify({ id, ...question })}\n`);
    });
  }

  /** Ends it quietly; resolves when it is gone, or `waitMs` later at the latest. */
  async close(waitMs: number): Promise<void> {
    this.#finish({ kind: 'missing', reading: 'failed', reason: 'closed' });
    if (this.#gone) return;
    this.#child.ref();
    await new Promise<void>((resolve) => {
      const cancel = startDeadline(waitMs, resolve);
      this.#child.once('exit', () => {
        cancel();
        resolve();
      });
    });
    this.#child.unref();
  }

  #listen(): void {
    const { stdin, stdout, stderr } = this.#child;
    // EPIPE and the like: the exit, which follows, says it better.
    stdin?.on('error', () => undefined);
    stdout?.setEncoding('utf8').on('data', (chunk: string) => this.#take(chunk));
    stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      this.#stderr = (this.#stderr + chunk).slice(-stderrBytesMax);
    });
    this.#child.on('error', (error) => {
      this.#gone ||= this.#child.pid === undefined;
      this.#fail('failed', `the NVML helper could not be started: ${error.message}`);
    });
    this.#child.on('exit', (code, signal) => {
      this.#gone = true;
      const said = lastError(this.#stderr);
      this.#fail('failed', `the NVML helper ended (${signal ?? `exit code ${code ?? '?'}`})${said === '' ? '' : `: ${said}`}`);
    });
    // Nothing of the helper keeps our process alive; the deadlines of open questions do.
    this.#child.unref();
    for (const stream of [stdin, stdout, stderr]) (stream as { unref?: () => void } | null | undefined)?.unref?.();
  }

  #take(chunk: string): void {
    if (this.#over) return;
    const lines = (this.#text + chunk).split('\n');
    this.#text = lines.pop() ?? '';
    for (const line of lines) this.#hear(line);
    if (this.#text.length > lineBytesMax) this.#fail('failed', 'the NVML helper wrote without end');
  }

  #hear(line: string): void {
    let message: HelperMessage;
    try {
      message = JSON.parse(line) as HelperMessage;
    } catch {
      this.#fail('failed', `the NVML helper wrote something else than an answer: ${line.slice(0, 80)}`);
      return;
    }
    if (message.say === 'ready' || message.say === 'unavailable') {
      this.#cancelStart();
      this.#settleOpened({ kind: 'answered', message });
      return;
    }
    const question = this.#open.get(message.id);
    this.#open.delete(message.id);
    question?.cancelDeadline();
    question?.settle({ kind: 'answered', message });
  }

  #fail(reading: MissingReading, reason: string): void {
    if (this.#over) return;
    this.#finish({ kind: 'missing', reading, reason });
    this.#ended(reason);
  }

  #finish(outcome: HelperOutcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#cancelStart();
    this.#settleOpened(outcome);
    for (const { cancelDeadline, settle } of this.#open.values()) {
      cancelDeadline();
      settle(outcome);
    }
    this.#open.clear();
    this.#child.stdin?.destroy();
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    this.#child.kill('SIGKILL');
  }
}

/** The line that says why: Node ends its report of an error with a stack and its own version. */
function lastError(stderr: string): string {
  const lines = stderr.split('\n').map((line) => line.trim()).filter((line) => line !== '');
  return (lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? '').slice(0, 300);
}
