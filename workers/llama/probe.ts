/** Does this backend really compute on this card? Asked of a child process, which may die of the answer. */
import { fileURLToPath } from 'node:url';
import { ChildDeath, startChild, type RiskyChild } from './child.js';
import type { FromProbe, ProbeBackend } from './probe-child.js';

export type { ProbeBackend } from './probe-child.js';

/** A child that has computed and now idles: its own bytes stay as they are until it is released. */
export interface LivingProbe {
  readonly works: true;
  /** Used bytes of the whole card as the child sees them now; null when it does not say. */
  usedBytes(): Promise<number | null>;
  /** Ends the child; resolves when it is gone. */
  release(): Promise<void>;
}

export interface FailedProbe {
  readonly works: false;
  readonly reason: string;
}

export interface ProbeOptions {
  /** The child’s program; another one in tests. */
  readonly probeProgram?: string;
  readonly probeTimeoutMs?: number;
}

/** Runs one token on `backend` in a child. Never rejects: a child that dies, hangs or refuses is a failed probe. */
export async function probeBackend(backend: ProbeBackend, options: ProbeOptions = {}): Promise<LivingProbe | FailedProbe> {
  const program = options.probeProgram ?? fileURLToPath(new URL('./probe-child.js', import.meta.url));
  const child = startChild(program, [backend]);
  const answer = await child.next(options.probeTimeoutMs ?? 60_000);
  if (isAnswer(answer) && answer.kind === 'ran') return livingProbe(child);
  await child.kill();
  if (answer instanceof ChildDeath) return { works: false, reason: answer.how };
  return { works: false, reason: isAnswer(answer) && answer.kind === 'failed' ? answer.reason : 'it spoke out of turn' };
}

function livingProbe(child: RiskyChild): LivingProbe {
  return {
    works: true,
    async usedBytes() {
      if (!child.send('read')) return null;
      const answer = await child.next(10_000);
      return isAnswer(answer) && answer.kind === 'read' ? answer.usedBytes : null;
    },
    release: () => child.kill(),
  };
}

function isAnswer(value: unknown): value is FromProbe {
  return typeof value === 'object' && value !== null && 'kind' in value;
}
