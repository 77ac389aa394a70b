/** What a broker finds of the ones before it: their processes that live on, and what those hold on simulated cards. */
import { closeSync, constants, lstatSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';
import { CardJournal, type SimulatedCard } from '../devices/index.js';
import type { ProcessIdentity } from '../supervisor/types.js';
import type { Holders } from './holders.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import { openPrivate, readPrivate, writing } from './private-file.js';
import type { ProcessRecord, ProcessRecords } from './process-records.js';
import { makePrivateFolder } from './state-folder.js';
import type { Workers } from './workers.js';

/** Whether that very process lives; a pid without its start time names nobody for sure, and counts as alive. */
export type Lives = (identity: ProcessIdentity) => boolean;

export interface RecallParts {
  readonly records: ProcessRecords;
  readonly workers: Workers;
  readonly holders: Holders;
  readonly lives: Lives;
  readonly log: Log;
  readonly feed: (event: UntimedEvent) => void;
}

/** Takes over whoever is on record and lives; the others' records are removed. Returns the generations that live on. */
export function recallProcesses(parts: RecallParts): ReadonlySet<string> {
  const { records, log, feed } = parts;
  const living = new Set<string>();
  for (const record of records.read()) {
    const { generation, role, name, engine, devices, floors, identity } = record;
    if (!takenOver(parts, record)) {
      records.remove(generation);
      continue;
    }
    living.add(generation);
    log.info({ generation, role, pid: identity?.pid ?? null, devices }, 'a process of an earlier broker lives on');
    feed({ type: 'process_recorded', generation, role, name, engine, devices, floors });
  }
  return living;
}

function takenOver({ workers, holders, lives }: RecallParts, record: ProcessRecord): boolean {
  const { role, generation, identity, devices } = record;
  if (role === 'worker') return workers.adopt(record);
  // One that became the broker itself ends with us; what it holds is seen as any stranger's.
  if (identity === null || identity.pid === process.pid || !lives(identity)) return false;
  holders.known(generation, devices);
  workers.watch(generation, identity);
  return true;
}

const journalBytesMax = 64 * 1024 * 1024;

/** Something on the disk that this broker has in mind too, and writes again when it is gone. */
export interface Kept {
  readonly path: string;
  /** True when it had to be put back. Throws what stands against it. */
  keep(): boolean;
}

/** Simulated cards go on as real ones would: with the bytes of every process that still lives. Returns their journals. */
export function rememberCards(stateFolder: string, cards: Iterable<SimulatedCard>, lives: Lives, log: Log): readonly Kept[] {
  const folder = join(stateFolder, 'simulated');
  const journals: Kept[] = [];
  for (const card of cards) {
    makePrivateFolder(folder);
    const { device } = card.description;
    const path = join(folder, `${device}.journal`);
    const fault = (error: unknown): void => { log.error({ device, reason: LeaseholdError.from(error).message }, 'a simulated card cannot be noted: what it holds ends with this broker'); };
    const unbelieved = card.remember(new CardJournal({ read: () => readJournal(path, fault), replace: (text) => replaceJournal(path, text) }, fault), (pid, startTime) => lives({ pid, startTime }));
    if (unbelieved > 0) log.warn({ device, path, lines: unbelieved }, 'lines of what a simulated card has given out are not believed');
    journals.push({ path, keep: () => keepJournal(folder, path, card) });
  }
  return journals;
}

function keepJournal(folder: string, path: string, card: SimulatedCard): boolean {
  makePrivateFolder(folder);
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined) return false;
  card.noteAnew();
  return true;
}

function readJournal(path: string, fault: (error: unknown) => void): string | null {
  try {
    return readPrivate(path, journalBytesMax);
  } catch (error) {
    fault(error);
    return null;
  }
}

function replaceJournal(path: string, text: string): number {
  return writing(path, () => {
    const fresh = `${path}.new`;
    const file = openPrivate(fresh, constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND);
    try {
      writeSync(file, text);
      renameSync(fresh, path);
      return file;
    } catch (error) {
      closeSync(file);
      throw error;
    }
  });
}
