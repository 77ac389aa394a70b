/** What the shell needs of a log. The daemon gives it pino; an embedder may give its own; the default says nothing. */
import { createRequire } from 'node:module';
import { LeaseholdError, plainJson } from '../../protocol/index.js';
import { PatientFile, openPatiently } from './patient-file.js';
import { requireReader, writeReason } from './private-file.js';

export interface Log {
  debug(fields: Readonly<Record<string, unknown>>, message: string): void;
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

export type LogLevel = keyof Log;

export const silentLog: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };

/**
 * A log that never throws, whatever its destination does: a full disk under a
 * log file, or an embedder's own logger, must not end what only wanted to tell.
 * Lines that could not be written are counted, and told of with the next one
 * that can.
 */
export function steadyLog(log: Log): Log {
  let lostLines = 0;
  let reason = '';
  const write = (level: LogLevel) => (fields: Readonly<Record<string, unknown>>, message: string): void => {
    try {
      log[level](fields, message);
      if (lostLines > 0) log.warn({ lostLines, reason }, 'lines could not be written for a while');
      lostLines = 0;
    } catch (error) {
      lostLines += 1;
      reason = String(error);
    }
  };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

/** Paths whose values never reach a log. */
export const redactedPaths = ['proof', 'key', 'secret', 'ticket', 'env', '*.proof', '*.key', '*.secret', '*.ticket', '*.env'];

const levels: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];
/** What a destination that takes nothing may owe; the rest is dropped. */
const heldBytesMax = 1024 * 1024;
/** The first lines wait so long for the logger: a start is not delayed by what it says of itself. */
const firstLinesMs = 50;

/**
 * A pino log to stderr (or `destination`), keys redacted. pino itself is loaded
 * a moment after the first line, because it costs a start ten milliseconds that
 * an embedder, or who waits for a daemon, need not pay. Lines that are waiting
 * when the process exits are still written.
 */
export function createLog(level: LogLevel, destination: string | number = 2): Log {
  const waiting: { readonly level: LogLevel; readonly atMs: number; readonly fields: Readonly<Record<string, unknown>>; readonly message: string }[] = [];
  let saidAtMs: number | null = null;
  let log: Log | null = null;
  const load = (): void => {
    process.off('exit', load);
    const logger = log ??= loadPino(level, destination, () => saidAtMs ?? Date.now());
    for (const line of waiting.splice(0)) {
      saidAtMs = line.atMs;
      logger[line.level](line.fields, line.message);
    }
    saidAtMs = null;
  };
  // A file that cannot be written must fail the start, not a timer.
  if (typeof destination === 'string') {
    try {
      const release = requireReader(destination);
      try {
        load();
      } finally {
        release();
      }
    } catch (error) {
      throw new LeaseholdError('config_invalid', { path: 'log', where: 'file', reason: `${destination} cannot be written: ${writeReason(error)}` }, { cause: error });
    }
  }
  const write = (lineLevel: LogLevel) => (fields: Readonly<Record<string, unknown>>, message: string): void => {
    if (levels.indexOf(lineLevel) < levels.indexOf(level)) return;
    if (log !== null) {
      log[lineLevel](fields, message);
      return;
    }
    if (waiting.length === 0) {
      process.once('exit', load);
      setTimeout(load, firstLinesMs).unref();
    }
    waiting.push({ level: lineLevel, atMs: Date.now(), fields, message });
  };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

function loadPino(level: LogLevel, destination: string | number, nowMs: () => number): Log {
  const { pino } = createRequire(import.meta.url)('pino') as typeof import('pino');
  const patient = openPatiently(destination);
  const target = patient === null
    ? pino.destination({ dest: destination, sync: true, mode: 0o600, maxLength: heldBytesMax })
    : new PatientFile(patient, (lostLines) => `${JSON.stringify({ level: 40, time: Date.now(), pid: process.pid, lostLines, msg: 'lines were left out: nothing was read here for a while' })}\n`);
  const timestamp = (): string => `,"time":${String(nowMs())}`;
  return pino({ level, timestamp, hooks: { streamWrite: plainJson }, redact: { paths: redactedPaths, censor: '[redacted]' }, base: { pid: process.pid } }, target);
}

function nothing(): void {
  // The silent log's whole purpose.
}
