/**
 * Checks ask drivers and file systems that may hang a whole process or end it, so they are carried out in one of their
 * own, which is watched as a worker is. When it stops turning or ends too early, the checks that were under way are
 * tried again one by one, each in a process of its own; the one that does it again is the finding.
 */
import { durationText } from '../../protocol/index.js';
import { fileURLToPath } from 'node:url';
import { createSupervisor, nodeCommand, type Supervisor, type SupervisorHandlers } from '../../broker/supervisor/index.js';
import { startDeadline } from '../../broker/devices/deadline.js';
import type { Flags } from '../config/index.js';
import type { Check } from './check.js';
import { findingsOf, type Listener } from './examine.js';
import type { ExaminerMessage, ExaminerSetup } from './examiner-messages.js';
import { problem, type Finding } from './finding.js';

export interface ApartOptions {
  readonly checks: readonly Check[];
  readonly flags: Flags;
  readonly listener: Listener;
  readonly signal?: AbortSignal;
  /** The examiner's program; another one in tests. */
  readonly program?: string;
  /** Without a word for so long it is hung. */
  readonly silenceMs?: number;
}

const silenceMsDefault = 20_000;
const lineBytesMax = 256 * 1024;

/** Resolves when every check has been answered for, or at once when `signal` aborts. Never rejects for what a check does. */
export async function examineApart(options: ApartOptions): Promise<void> {
  const open = new Map(options.checks.map((check) => [check.id, check]));
  let rounds: readonly (readonly Check[])[] = [options.checks];
  for (let round = rounds[0]; round !== undefined && options.signal?.aborted !== true; round = rounds[0]) {
    rounds = rounds.slice(1);
    const end = await new Round(options, round, open).run();
    if (end.kind === 'done') continue;
    const begun = end.begun.flatMap((id) => open.get(id) ?? []);
    const [first, ...others] = begun;
    const left = round.filter(({ id }) => open.has(id));
    if (first !== undefined && others.length === 0) answer(options, open, first, findingsOf(first, problem(end.how, endAdvice)));
    const rest = left.filter(({ id }) => open.has(id) && !begun.some((check) => check.id === id));
    if (first === undefined) for (const check of rest) answer(options, open, check, findingsOf(check, problem(`it was not carried out: ${end.how}`, endAdvice)));
    else rounds = [...(others.length === 0 ? [] : begun.map((check) => [check])), ...(rest.length === 0 ? [] : [rest]), ...rounds];
  }
}

const endAdvice = 'Something it asks takes a whole process with it: look at `dmesg`, and at the driver or file system that it is about.';

function answer({ listener }: ApartOptions, open: Map<string, Check>, check: Check, findings: readonly Finding[]): void {
  open.delete(check.id);
  listener.onFound(check.id, findings);
}

type RoundEnd = { readonly kind: 'done' } | { readonly kind: 'broken'; readonly how: string; readonly begun: readonly string[] };

/** One process of the examiner. */
class Round {
  readonly #options: ApartOptions;
  readonly #checks: readonly Check[];
  readonly #open: Map<string, Check>;
  readonly #begun = new Set<string>();
  readonly #supervisor: Supervisor;
  #cancelSilence = (): void => undefined;
  #settle: (end: RoundEnd) => void = () => undefined;
  #settled = false;

  constructor(options: ApartOptions, checks: readonly Check[], open: Map<string, Check>) {
    this.#options = options;
    this.#checks = checks;
    this.#open = open;
    this.#supervisor = createSupervisor(this.#handlers, { limits: { outputLineBytesMax: lineBytesMax }, outputLinesPerSecondMax: 10_000 });
  }

  async run(): Promise<RoundEnd> {
    const ended = new Promise<RoundEnd>((resolve) => { this.#settle = resolve; });
    const abort = (): void => { this.#end({ kind: 'done' }); };
    this.#options.signal?.addEventListener('abort', abort, { once: true });
    const setup: ExaminerSetup = { flags: this.#options.flags, checks: this.#checks.map(({ id }) => id) };
    const program = this.#options.program ?? fileURLToPath(new URL('./examiner.js', import.meta.url));
    const { command, args, env } = nodeCommand(program, [JSON.stringify(setup)]);
    this.#supervisor.spawn({ generation: 'examiner', spawnId: 'doctor', command, args, env: { ...settings(), ...env } });
    this.#awaitWord(silenceMsDefault);
    const end = await ended;
    this.#options.signal?.removeEventListener('abort', abort);
    this.#cancelSilence();
    // With everything it has started. What outlives even SIGKILL is not waited for beyond the supervisor's own limit.
    await this.#supervisor.close(0);
    return end;
  }

  readonly #handlers: SupervisorHandlers = {
    onSpawned: () => undefined,
    onSpawnFailed: (_generation, reason) => { this.#break(`the process for it could not be started: ${reason}`); },
    onExited: (_generation, { how, lastLines }) => { this.#break(`it ended the process that asked (${[how, ...lastLines.filter((line) => /error|assert|abort/i.test(line) && !line.startsWith('{')).slice(-1)].join(': ')})`); },
    onKillUnconfirmed: () => undefined,
    onOutput: (_generation, stream, line) => { if (stream === 'stdout') this.#hear(line); },
  };

  #hear(line: string): void {
    this.#awaitWord();
    const message = parse(line);
    if (message === null || this.#settled) return;
    if (message.say === 'begun') {
      this.#begun.add(message.id);
      this.#options.listener.onBegun(message.id);
    } else if (message.say === 'found') {
      const check = this.#open.get(message.id);
      this.#begun.delete(message.id);
      if (check !== undefined) answer(this.#options, this.#open, check, message.findings);
    } else if (message.say === 'done') this.#end({ kind: 'done' });
  }

  /** At least `leastMs`: the first word takes the start of a process. */
  #awaitWord(leastMs = 0): void {
    const silenceMs = Math.max(leastMs, this.#options.silenceMs ?? silenceMsDefault);
    this.#cancelSilence();
    this.#cancelSilence = startDeadline(silenceMs, () => { this.#break(`it hung the process that asked for ${durationText(silenceMs)}`); });
  }

  #break(how: string): void {
    this.#end({ kind: 'broken', how, begun: [...this.#begun] });
  }

  #end(end: RoundEnd): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#settle(end);
  }
}

/** A supervisor keeps what is a broker's own from its children; the examiner goes by the same settings as we do. */
function settings(): Record<string, string> {
  return Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => (value !== undefined && name.startsWith('LEASEHOLD_') ? [[name, value]] : [])));
}

/** Null for what is no word of the examiner's: a warning of Node, a library's log. */
function parse(line: string): ExaminerMessage | null {
  try {
    const value = JSON.parse(line) as Partial<ExaminerMessage> | null;
    return typeof value === 'object' && value !== null && 'say' in value ? value as ExaminerMessage : null;
  } catch {
    return null;
  }
}
