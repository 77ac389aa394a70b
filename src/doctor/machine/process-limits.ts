/** Limits of a process as the kernel holds them, by /proc/PID/limits. */
import type { Machine } from './machine.js';

export interface ProcessLimit {
  /** Null: unlimited. */
  readonly soft: number | null;
  readonly hard: number | null;
}

/** By the kernel's own names, like `Max open files`; null when they cannot be read. */
export async function readProcessLimits(machine: Machine, pid: number | 'self' = 'self'): Promise<ReadonlyMap<string, ProcessLimit> | null> {
  const text = await machine.readText(`/proc/${String(pid)}/limits`);
  return text === null ? null : parseProcessLimits(text);
}

export function parseProcessLimits(text: string): ReadonlyMap<string, ProcessLimit> {
  const limits = new Map<string, ProcessLimit>();
  for (const line of text.split('\n')) {
    const [, name, soft, hard] = /^(Max [a-z ]*[a-z]) +(\d+|unlimited) +(\d+|unlimited)/.exec(line) ?? [];
    if (name !== undefined && soft !== undefined && hard !== undefined) limits.set(name, { soft: figure(soft), hard: figure(hard) });
  }
  return limits;
}

function figure(text: string): number | null {
  return text === 'unlimited' ? null : Number(text);
}
