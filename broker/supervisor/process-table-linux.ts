/** Processes by /proc. A full listing costs one small read a process, and one more when it is new. */
import { closeSync, openSync, readFileSync, readSync, readdirSync } from 'node:fs';
import type { ProcessIdentity } from './types.js';
import { isShortage, sendSignal, type ProcessRow, type ProcessTable, type SignalOutcome } from './process-table.js';

export const tokenName = 'LEASEHOLD_TOKEN';

interface Stat {
  readonly parentPid: number;
  readonly group: number;
  readonly session: number;
  readonly startTime: string;
  readonly ended: boolean;
}

type Tokens = Map<number, { readonly startTime: string; readonly token: string | null }>;

/**
 * The fields of /proc/PID/stat that we use. They are counted from the last parenthesis, because a process may call
 * itself `a) b`. A zombie whose other threads still run has not ended: its memory is in use.
 */
export function parseStat(text: string): Stat | null {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, parentPid, group, session] = fields;
  const threads = fields[17];
  const startTime = fields[19];
  if (state === undefined || parentPid === undefined || group === undefined || session === undefined || startTime === undefined) return null;
  const ended = state === 'X' || (state === 'Z' && Number(threads) <= 1);
  return { parentPid: Number(parentPid), group: Number(group), session: Number(session), startTime, ended };
}

/** The token in an environment block: names and values parted by NUL. */
export function parseToken(environ: Buffer): string | null {
  return parseVariable(environ, tokenName);
}

function parseVariable(environ: Buffer, variable: string): string | null {
  const name = `${variable}=`;
  for (let at = environ.indexOf(name); at !== -1; at = environ.indexOf(name, at + 1)) {
    if (at !== 0 && environ[at - 1] !== 0) continue;
    const end = environ.indexOf(0, at);
    return environ.toString('latin1', at + name.length, end === -1 ? environ.length : end);
  }
  return null;
}

export class LinuxProcessTable implements ProcessTable {
  readonly lists = true;
  readonly #root: string;
  readonly #buffer = Buffer.allocUnsafe(4_096);
  /** An environment is fixed at exec, so it is read once for each process. */
  #tokens: Tokens = new Map();

  constructor(root = '/proc') {
    this.#root = root;
  }

  /** All or nothing: with one process unread, somebody would take it for gone. */
  list(): readonly ProcessRow[] | null {
    return unlessShort(() => this.#listNow(), () => null);
  }

  #listNow(): readonly ProcessRow[] {
    const tokens: Tokens = new Map();
    const rows: ProcessRow[] = [];
    for (const name of readdirSync(this.#root)) {
      const pid = Number(name);
      if (!Number.isInteger(pid)) continue;
      const stat = this.#stat(pid);
      if (stat === null) continue;
      const known = this.#tokens.get(pid);
      const entry = known?.startTime === stat.startTime ? known : { startTime: stat.startTime, token: this.#token(pid) };
      tokens.set(pid, entry);
      rows.push({ pid, ...stat, token: entry.token });
    }
    this.#tokens = tokens;
    return rows;
  }

  find(pid: number): ProcessIdentity | null {
    const found = (): ProcessIdentity | null => {
      const stat = this.#stat(pid);
      return stat === null || stat.ended ? null : { pid, startTime: stat.startTime };
    };
    // Signal 0 costs no descriptor: that something has the pid is then all that is known.
    return unlessShort(found, () => (sendSignal(pid, 0) === 'gone' ? null : { pid, startTime: null }));
  }

  startTime(pid: number): string | null {
    return unlessShort(() => this.#stat(pid)?.startTime ?? null, () => null);
  }

  variable(pid: number, name: string): string | null {
    return unlessShort(() => unlessGone(() => parseVariable(readFileSync(`${this.#root}/${pid}/environ`), name)), () => null);
  }

  signal(pid: number, signal: NodeJS.Signals): SignalOutcome {
    return sendSignal(pid, signal);
  }

  signalGroup(group: number, signal: NodeJS.Signals): SignalOutcome {
    return sendSignal(-group, signal);
  }

  #stat(pid: number): Stat | null {
    return unlessGone(() => {
      const file = openSync(`${this.#root}/${pid}/stat`, 'r');
      try {
        const length = readSync(file, this.#buffer, 0, this.#buffer.length, 0);
        return parseStat(this.#buffer.toString('latin1', 0, length));
      } finally {
        closeSync(file);
      }
    });
  }

  #token(pid: number): string | null {
    return unlessGone(() => parseToken(readFileSync(`${this.#root}/${pid}/environ`)));
  }
}

/** Null for a process that ended under our eyes (ENOENT, ESRCH) or is not ours to look into (EACCES, EPERM). */
function unlessGone<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM') return null;
    throw error;
  }
}

/** What `read` finds, or `otherwise` when the system had no means to look. */
function unlessShort<T>(read: () => T, otherwise: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!isShortage(error)) throw error;
    return otherwise();
  }
}
