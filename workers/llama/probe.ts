/** Does this backend really compute on this card? Asked of a child process, which may die of the answer. */
import { fileURLToPath } from 'node:url';
import { ChildDeath, startChild } from './child.js';
import type { FromProbe, ProbeBackend } from './probe-child.js';

export type { ProbeBackend } from './probe-child.js';

export type ProbeResult = { readonly works: true } | { readonly works: false; readonly reason: string };

export interface ProbeOptions {
  /** The child’s program; another one in tests. */
  readonly probeProgram?: string;
  /** Default: a minute. */
  readonly probeTimeoutMs?: number;
}

/**
 * Runs one token on `backend` in a child; resolves when the child is gone, and what it took with it. Never rejects: a
 * child that dies, hangs or refuses is a failed probe.
 */
export async function probeBackend(backend: ProbeBackend, cardName: string, options: ProbeOptions = {}): Promise<ProbeResult> {
  const program = options.probeProgram ?? fileURLToPath(new URL('./probe-child.js', import.meta.url));
  const child = startChild(program, [backend, cardName]);
  const answer = await child.next(options.probeTimeoutMs ?? 60_000);
  await child.kill();
  if (answer instanceof ChildDeath) return { works: false, reason: answer.how };
  if (!isAnswer(answer)) return { works: false, reason: 'it spoke out of turn' };
  if (answer.kind === 'ran') return { works: true };
  return { works: false, reason: [answer.reason, child.words()].filter((text) => text !== '').join(': ') };
}

function isAnswer(value: unknown): value is FromProbe {
  return typeof value === 'object' && value !== null && 'kind' in value;
}
