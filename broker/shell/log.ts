/** What the shell needs of a log. The daemon gives it pino; an embedder may give its own; the default says nothing. */
export interface Log {
  debug(fields: Readonly<Record<string, unknown>>, message: string): void;
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

export const silentLog: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };

/** Paths whose values never reach a log. */
export const redactedPaths = ['proof', 'key', 'secret', 'ticket', 'env', '*.proof', '*.key', '*.secret', '*.ticket', '*.env'];

/**
 * A pino log to stderr (or `destination`), keys redacted. pino is loaded here
 * and only here, because it costs 41 ms that an embedder need not pay.
 */
export async function createLog(level: 'debug' | 'info' | 'warn' | 'error', destination: string | number = 2): Promise<Log> {
  const { pino } = await import('pino');
  const target = pino.destination({ dest: destination, sync: true, mode: 0o600 });
  const log: Log = pino({ level, redact: { paths: redactedPaths, censor: '[redacted]' }, base: { pid: process.pid } }, target);
  return log;
}

function nothing(): void {
  // The silent log's whole purpose.
}
