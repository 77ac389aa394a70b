/** The spawn itself: a process in a session and group of its own, with a clean environment, its output in pipes. */
import { spawn, type ChildProcess } from 'node:child_process';
import { LeaseholdError, descriptorShortage } from '../../protocol/index.js';
import { cleanEnvironment } from './environment.js';
import { tokenName } from './process-table-linux.js';
import type { SpawnRequest } from './types.js';

/**
 * Starts it. Without a pid the child has not started, and its `error` event, which follows, says why; some refusals (an
 * argument list too long) the system throws instead, and those are the `failure`.
 */
export function launch(request: SpawnRequest, token: string): { readonly child: ChildProcess } | { readonly failure: Error } {
  try {
    const child = spawn(request.command, request.args, {
      env: cleanEnvironment(process.env, { ...request.env, [tokenName]: token }),
      stdio: ['ignore', 'pipe', 'pipe'],
      // Its number then names its whole group, and a terminal's interrupt does not reach it.
      detached: true,
      windowsHide: true,
    });
    return { child };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return { failure: error };
  }
}

/** Why a process was not started: in words, and as the error that says what to do, where there is one. */
export type WhyNot = readonly [reason: string, typed: LeaseholdError | null];

export function failedStart(command: string, error: NodeJS.ErrnoException): WhyNot {
  return [launchFailure(command, error), shortageOf(error)];
}

/** No descriptor was left, which says nothing of the command; null for any other reason. */
export function shortageOf(error: unknown): LeaseholdError | null {
  return descriptorShortage(error) === null ? null : LeaseholdError.from(error);
}

/** For people: what, and the system's own word for it. */
function launchFailure(command: string, error: NodeJS.ErrnoException): string {
  const texts: Readonly<Record<string, string>> = { ENOENT: 'there is no such file', EACCES: 'it may not be executed', EPERM: 'it may not be executed' };
  const text = texts[error.code ?? ''] ?? error.message;
  return `${command}: ${text}${error.code === undefined ? '' : ` (${error.code})`}`;
}
