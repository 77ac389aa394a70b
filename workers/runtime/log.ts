/** A worker's log: lines go to the broker as frames, bounded, and never hold up a call (R87). */
import type { ControlChannel } from './control.js';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
export type LogFields = Readonly<Record<string, string>>;

/** Lines kept until the channel is open. */
const earlyLinesMax = 200;
/** Above this many unsent bytes lines are dropped and counted instead of queued. */
const unsentBytesMax = 256 * 1024;
const messageCharactersMax = 4_096;
const fieldCharactersMax = 2_000;
/** One less than the wire allows: the count of dropped lines is a field, too. */
const fieldsMax = 31;

export class WorkerLog {
  #channel: ControlChannel | null = null;
  #early: { level: LogLevel; message: string; fields: LogFields }[] = [];
  #dropped = 0;

  attach(channel: ControlChannel): void {
    this.#channel = channel;
    const early = this.#early;
    this.#early = [];
    for (const line of early) this.line(line.level, line.message, line.fields);
  }

  line(level: LogLevel, message: string, fields: LogFields = {}): void {
    const channel = this.#channel;
    if (channel === null) {
      if (this.#early.length < earlyLinesMax) this.#early.push({ level, message, fields });
      else this.#dropped += 1;
      return;
    }
    if (!channel.open || channel.unsentBytes > unsentBytesMax) {
      this.#dropped += 1;
      return;
    }
    const cut = Object.entries(fields).slice(0, fieldsMax).map(([name, value]) => [name.slice(0, 128), value.slice(0, fieldCharactersMax)] as const);
    const all = this.#dropped === 0 ? cut : [...cut, ['droppedLines', String(this.#dropped)] as const];
    this.#dropped = 0;
    channel.send({ type: 'log', level, message: message.slice(0, messageCharactersMax), fields: Object.fromEntries(all) });
  }
}
