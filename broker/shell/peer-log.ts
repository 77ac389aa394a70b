/** What peers have to say for the log, in bounds: so many bytes of one process in a second, and the rest is counted. */
import type { ControlMessage } from '../../protocol/index.js';
import type { Log } from './log.js';
import type { Session } from './session.js';

type LogMessage = Extract<ControlMessage, { type: 'log' }>;

interface Spent {
  readonly generation: string;
  bytes: number;
  linesLeftOut: number;
}

const windowMs = 1_000;
/** What a line costs besides its words: time, level, names of fields. */
const lineBytes = 128;

export class PeerLog {
  readonly #log: Log;
  readonly #bytesPerSecondMax: number;
  /** By pid: whoever comes again by another connection has no more to say for it. */
  readonly #spent = new Map<number, Spent>();
  #timer: NodeJS.Timeout | null = null;

  constructor(log: Log, bytesPerSecondMax: number) {
    this.#log = log;
    this.#bytesPerSecondMax = bytesPerSecondMax;
  }

  take({ generation, identity }: Pick<Session, 'generation' | 'identity'>, message: LogMessage): void {
    const spent = this.#spent.get(identity.pid) ?? { generation, bytes: 0, linesLeftOut: 0 };
    this.#spent.set(identity.pid, spent);
    this.#timer ??= setTimeout(() => { this.flush(); }, windowMs).unref();
    const bytes = bytesOf(message);
    if (spent.linesLeftOut > 0 || spent.bytes + bytes > this.#bytesPerSecondMax) {
      spent.linesLeftOut += 1;
      return;
    }
    spent.bytes += bytes;
    // Who speaks, when and how loud is ours to say, whatever its fields are called.
    const { fields } = message;
    this.#log[message.level]({ generation, ...(Object.keys(fields).length === 0 ? {} : { fields }) }, message.message);
  }

  /** The second is over, or the broker ends: what was left out is told. */
  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const { generation, linesLeftOut } of this.#spent.values()) {
      if (linesLeftOut > 0) this.#log.warn({ generation, linesLeftOut }, `${String(linesLeftOut)} lines left out: more than ${String(this.#bytesPerSecondMax)} bytes a second`);
    }
    this.#spent.clear();
  }
}

function bytesOf({ message, fields }: LogMessage): number {
  return lineBytes + Buffer.byteLength(message) + Buffer.byteLength(JSON.stringify(fields));
}
