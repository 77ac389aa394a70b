/** What an engine's failure means, told from llama.cpp's log: out of memory is the card's word, not a broken model. */
import { LeaseholdError } from '../../protocol/index.js';
import { wantedBytesIn } from './refused-bytes.js';
import type { StartedLlama } from './started.js';

export interface FailureOf {
  readonly model: string;
  readonly device: string;
}

/** The error for a load or a context that failed: `out_of_memory` with numbers, else `load_failed` with the log's reason. */
export async function failureOf(started: StartedLlama, of: FailureOf, lines: readonly string[], cause: unknown): Promise<LeaseholdError> {
  if (cause instanceof LeaseholdError) return cause;
  const wantedBytes = wantedBytesIn(lines);
  if (wantedBytes !== null) {
    const freeBytes = await freeBytesNow(started);
    return new LeaseholdError('out_of_memory', { device: of.device, wantedBytes, freeBytes: freeBytes ?? 'an unknown number of' }, { cause });
  }
  const said = lines.filter((line) => /error|fail|invalid|missing|unknown/i.test(line)).slice(0, 3).join('; ');
  const thrown = cause instanceof Error ? cause.message : String(cause);
  return new LeaseholdError('load_failed', { model: of.model, reason: said === '' ? thrown : `${thrown} (${said})` }, { cause });
}

async function freeBytesNow({ llama, backend }: StartedLlama): Promise<number | null> {
  if (backend === 'cpu') return null;
  return Math.floor((await llama.getVramState()).free);
}
