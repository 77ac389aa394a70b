/**
 * What a broker writes down of each process that may take bytes on a card, so that the next one knows who lives: one
 * private file a process, whole or not there, written before the process can touch a card and removed when its end is
 * confirmed. Whatever else lies in the folder, or is in a file, is told and not believed.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, lstatSync, readFileSync, readdirSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { LeaseholdError, deviceUuid, generationId } from '../../protocol/index.js';
import { bytes, choice, count, durationMs, integer, list, nullable, object, optional, string, type Infer } from '../../protocol/schema.js';
import { findLeader, isAlive, processTable } from '../supervisor/index.js';
import type { Log } from './log.js';
import { openPrivate, readPrivate, unreadable, writing } from './private-file.js';
import { makePrivateFolder } from './state-folder.js';

const identity = () => object({ pid: integer(1, 4_194_304, 'pid'), startTime: nullable(string(32)) });

const processRecord = object({
  version: integer(1, 1, 'version'),
  role: choice('worker', 'holder'),
  generation: generationId(),
  /** The broker that wrote it. */
  bootId: string(32),
  /** The start of the machine that its pids and start times are of. */
  machine: string(64),
  name: string(128),
  /** Null for a holder; so are spawn id, token and guard. */
  engine: nullable(string(64)),
  spawnId: nullable(string(64)),
  /** By it all that the process started is found (D37). */
  token: nullable(string(256)),
  /** The cards that it may have bytes on. */
  devices: list(deviceUuid(), 64),
  /** What was charged for it there, and in the machine's memory, before any model. */
  floors: list(object({ device: string(96), bytes: bytes() }), 64),
  threads: count(4_096),
  /** Null: it was about to be started. */
  identity: nullable(identity()),
  guard: nullable(identity()),
  /** So long a worker seeks the next broker once this one is gone; older brokers do not say. */
  graceMs: optional(durationMs()),
});

export type ProcessRecord = Infer<typeof processRecord>;

const recordBytesMax = 64 * 1024;
/** More are nobody's of ours: sessions and workers have their own limits. */
const recordsMax = 4_096;
const namePattern = /^([0-9A-Za-z]+-[ws]\d+)\.json$/;

export class ProcessRecords {
  /** The folder that they lie in. */
  readonly path: string;
  readonly #log: Log;
  /** What is on record, so that it can be put back. */
  readonly #known = new Map<string, ProcessRecord>();
  /** What could not be written when it was to be. */
  readonly #owed = new Map<string, ProcessRecord>();
  /** Of this start of the machine; pids and start times of another name nobody. */
  readonly machine: string;

  /** Makes the folder. Throws `state_unwritable`, or `config_unreadable` for what is not a folder of ours. */
  constructor(stateFolder: string, log: Log, machine = machineStart()) {
    this.path = join(stateFolder, 'processes');
    this.#log = log;
    this.machine = machine;
    makePrivateFolder(this.path);
  }

  /** Puts back what is not there any more, and writes what is owed; true when there was anything to put back. Throws as the constructor and `write` do. */
  keep(): boolean {
    const isFolderGone = lstatSync(this.path, { throwIfNoEntry: false }) === undefined;
    makePrivateFolder(this.path);
    const lost = [...this.#known.values()].filter(({ generation }) => lstatSync(this.#path(generation), { throwIfNoEntry: false }) === undefined);
    for (const record of lost) this.write(this.#owed.get(record.generation) ?? record);
    for (const record of [...this.#owed.values()]) this.write(record);
    return isFolderGone || lost.length > 0;
  }

  /** Replaces what is on record of that process. Throws `state_unwritable`. */
  write(record: ProcessRecord): void {
    const path = this.#path(record.generation);
    const fresh = `${path}.${randomBytes(6).toString('hex')}`;
    writing(path, () => {
      const file = openPrivate(fresh, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL);
      try {
        const text = `${JSON.stringify(record)}\n`;
        if (writeSync(file, text) !== Buffer.byteLength(text)) throw new Error('the disk took only a part of it');
        renameSync(fresh, path);
        this.#known.set(record.generation, record);
        this.#owed.delete(record.generation);
      } catch (error) {
        rmSync(fresh, { force: true });
        throw error;
      } finally {
        closeSync(file);
      }
    });
  }

  /** As `write`, of a process that lives whatever becomes of its record: one that cannot be written now is tried again at each `keep`. */
  writeOrOwe(record: ProcessRecord): void {
    this.#owed.set(record.generation, record);
    this.write(record);
  }

  /** Its end is confirmed, or it holds nothing. Idempotent. */
  remove(generation: string): void {
    this.#known.delete(generation);
    this.#owed.delete(generation);
    this.#drop(`${generation}.json`);
  }

  /** Every record that can be believed, oldest generation first; the others are told of, and removed where they can be. */
  read(): readonly ProcessRecord[] {
    const found: ProcessRecord[] = [];
    for (const name of readdirSync(this.path).sort()) {
      const record = found.length < recordsMax ? this.#readOne(name) : null;
      if (record !== null) found.push(record);
      else this.#drop(name);
    }
    for (const record of found) this.#known.set(record.generation, record);
    return found;
  }

  #readOne(name: string): ProcessRecord | null {
    const path = join(this.path, name);
    try {
      const generation = namePattern.exec(name)?.[1];
      if (generation === undefined) throw unreadable(path, 'it is no record of ours');
      const record = parsed(readPrivate(path, recordBytesMax) ?? '', path);
      if (record.generation !== generation) throw unreadable(path, `it is about ${record.generation}`);
      // The machine was started anew since: nobody of then lives.
      return record.machine === this.machine ? record : null;
    } catch (error) {
      const typed = LeaseholdError.from(error, 'config_unreadable', { path });
      this.#log.warn({ code: typed.code, path, reason: typed.message }, 'a record of a process is not believed');
      return null;
    }
  }

  /** What somebody laid there instead of a file stays: it is in nobody's way. */
  #drop(name: string): void {
    const path = join(this.path, name);
    try {
      if (lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === false) rmSync(path, { force: true });
    } catch (error) {
      this.#log.warn({ path, reason: LeaseholdError.from(error).message }, 'a record could not be removed');
    }
  }

  #path(generation: string): string {
    return join(this.path, `${generation}.json`);
  }
}

export interface LivingWorker {
  readonly pid: number;
  /** So long after the end of its broker it ends by itself; null: its broker did not say. */
  readonly graceMs: number | null;
}

/** The workers on record in a state folder that live, as seen from outside: nothing there is changed, and what cannot be believed is left out. */
export function livingWorkers(stateFolder: string): readonly LivingWorker[] {
  const folder = join(stateFolder, 'processes');
  if (lstatSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) return [];
  const table = processTable();
  const machine = machineStart();
  return readdirSync(folder).filter((name) => namePattern.test(name)).slice(0, recordsMax).flatMap((name) => {
    const record = believed(join(folder, name));
    if (record === null || record.role !== 'worker' || record.machine !== machine || record.identity === null || record.token === null) return [];
    const { identity, token, generation, guard } = record;
    if (!isAlive(table, identity)) return [];
    return findLeader(table, { generation, token, identity, guard })?.lives === true ? [{ pid: identity.pid, graceMs: record.graceMs ?? null }] : [];
  });
}

function believed(path: string): ProcessRecord | null {
  try {
    return parsed(readPrivate(path, recordBytesMax) ?? '', path);
  } catch (error) {
    // Gone since, or what the broker that starts here will tell of.
    if (error instanceof LeaseholdError) return null;
    throw error;
  }
}

function parsed(text: string, path: string): ProcessRecord {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new LeaseholdError('config_unreadable', { path, reason: 'it is not JSON' }, { cause: error });
  }
  const fault = processRecord.check(value, '');
  if (fault !== null) throw unreadable(path, `${fault.path === '' ? 'it' : fault.path} must be ${fault.expected}`);
  const record = value as ProcessRecord;
  const isComplete = record.role === 'holder' ? record.identity !== null : record.engine !== null && record.spawnId !== null && record.token !== null;
  if (!isComplete) throw unreadable(path, `what a ${record.role} has is missing`);
  return record;
}

/** What tells this start of the machine from every other; empty where the system does not tell. */
function machineStart(): string {
  if (process.platform !== 'linux') return '';
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error) return '';
    throw error;
  }
}
