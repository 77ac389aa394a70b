/**
 * Brings everything that a profile needs onto this machine, and says so last. Files arrive under names of their own, are
 * hashed whole, flushed and renamed; only then does the marker name them. Whatever ends this in between, the next
 * staging finds files that are right and partial ones that it may continue.
 */
import { link, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import type { HubClient } from '../hub/client.js';
import type { RepositoryFile } from '../hub/repository.js';
import type { Inspection } from '../inspect/inspect.js';
import { codeOf, makeFolder, plainFileBytes, renameDurably } from '../store/files.js';
import type { Snapshot } from '../store/layout.js';
import { stagedFile, writeMarker, type Marker } from '../store/marker.js';
import { emptyQuarantine, setAside } from '../store/quarantine.js';
import type { ModelStore } from '../store/store.js';
import { diskFull, freeBytesAt, isFull, writeFault } from '../store/volume.js';
import { donorsOf, type DonorFolders } from './donors.js';
import { Fetcher } from './fetch.js';
import { withLock } from './lock.js';
import { Partials } from './partials.js';
import { Meter, type StagingProgress } from './progress.js';
import { wantedHash } from './wanted.js';
import type { StagingThreads } from './threads.js';

export interface StageTools {
  readonly client: HubClient;
  readonly store: ModelStore;
  readonly threads: StagingThreads;
  readonly limits: Limits;
  readonly donors: DonorFolders;
}

export interface StageOptions {
  /** By path, the sha256 that the operator knows a file by. */
  readonly pins?: Readonly<Record<string, string>>;
  readonly onProgress?: (progress: StagingProgress) => void;
  readonly signal?: AbortSignal;
}

export interface StageResult {
  readonly profileId: string;
  readonly path: string;
  /** False: everything was there. */
  readonly downloaded: boolean;
  readonly downloadedBytes: number;
  /** Taken from other programs' folders. */
  readonly reusedBytes: number;
  /** Links in those folders that lead out of them, and were not followed. */
  readonly refused: readonly string[];
  /** Where a file is kept that was here and was wrong; null: none. */
  readonly keptAt: string | null;
}

/** Rejects with `hash_pin_mismatch` before any byte, `disk_full`, `stage_lock_timeout`, `file_corrupt`, `download_failed`, or what the hub refuses with. */
export async function stage(tools: StageTools, inspection: Inspection, options: StageOptions = {}): Promise<StageResult> {
  checkPins(inspection, options.pins ?? {});
  await tools.store.prepare();
  const abort = new AbortController();
  const follow = (): void => { abort.abort(options.signal?.reason); };
  if (options.signal?.aborted === true) follow();
  options.signal?.addEventListener('abort', follow, { once: true });
  const meter = new Meter(options.onProgress ?? (() => undefined), abort);
  try {
    return await new Staging(tools, inspection, meter, abort.signal).run();
  } catch (error) {
    throw isFull(error) ? writeFault(error, tools.store.layout.root, 0) : error;
  } finally {
    meter.end();
    options.signal?.removeEventListener('abort', follow);
  }
}

/** B206: what somebody pinned is held against what the hub announces, before it is fetched. */
function checkPins({ repository, files }: Inspection, pins: Readonly<Record<string, string>>): void {
  for (const [path, pinned] of Object.entries(pins)) {
    const actual = files.find((file) => file.path === path)?.sha256 ?? 'no such file, or no sha256 of it';
    if (actual !== pinned.toLowerCase()) throw new LeaseholdError('hash_pin_mismatch', { repository: repository.name, file: path, pinned: pinned.toLowerCase(), actual });
  }
}

class Staging {
  readonly #snapshot: Snapshot;
  readonly #folder: string;
  readonly #partials: Partials;
  readonly #refused: string[] = [];
  #keptAt: string | null = null;
  #downloadedBytes = 0;
  #reusedBytes = 0;

  constructor(private readonly tools: StageTools, private readonly inspection: Inspection, private readonly meter: Meter, private readonly signal: AbortSignal) {
    const { name, commit } = inspection.repository;
    const { layout } = tools.store;
    this.#snapshot = { repository: name, commit };
    this.#folder = layout.snapshotFolder(this.#snapshot);
    this.#partials = new Partials(layout.partials(name), tools.limits.stageHolderSilentMs);
  }

  async run(): Promise<StageResult> {
    const { store, limits } = this.tools;
    if (await this.#isStaged()) return this.#cached();
    await store.snapshotFolder(this.#snapshot);
    await makeFolder(store.layout.root, store.layout.partials(this.#snapshot.repository));
    const onWaiting = (holder: string): void => { this.meter.begin('waiting', `${holder} is staging it already`); };
    return withLock({ path: store.layout.lock(this.#snapshot), repository: this.#snapshot.repository, limits, signal: this.signal, onWaiting }, async () => {
      // Whoever had the lock before may have done it all.
      if (await this.#isStaged()) return this.#cached();
      await this.#complete();
      return this.#result();
    });
  }

  async #isStaged(): Promise<boolean> {
    return (await this.tools.store.state(this.inspection.profile)).missing === null;
  }

  async #complete(): Promise<void> {
    const { files } = this.inspection;
    const marker = await this.tools.store.marker(this.#snapshot);
    this.meter.expect(files.length, sum(files));
    const missing: RepositoryFile[] = [];
    for (const file of files) if (!await this.#isThere(file, marker) && !await this.#reuse(file)) missing.push(file);
    await this.#partials.sweep(new Set(missing.map((file) => wantedHash(file).hex)));
    await this.#requireRoom(missing);
    if (missing.length > 0) this.meter.begin('download', `downloading ${this.#snapshot.repository}`);
    await this.#fetchAll(missing);
    this.signal.throwIfAborted();
    await writeMarker(this.tools.store.layout.marker(this.#snapshot), this.#marker(marker));
  }

  /** A file that the marker vouches for, or that stands the test now. One that does not is set aside. */
  async #isThere(file: RepositoryFile, marker: Marker | null): Promise<boolean> {
    const path = await this.#pathOf(file);
    const bytes = await plainFileBytes(path);
    const vouched = marker?.files.some((each) => each.path === file.path && each.sha256 === file.sha256 && each.git_sha1 === file.gitSha1 && each.size_bytes === bytes) === true;
    if (bytes !== null && bytes === file.sizeBytes && (vouched || await this.#hasHash(path, file))) {
      this.meter.finish(file.path, bytes);
      return true;
    }
    this.#keptAt = await setAside(this.tools.store.layout, this.#snapshot, path) ?? this.#keptAt;
    return false;
  }

  /** B151, B208: bytes that another program downloaded are linked, or copied, once they have been hashed. */
  async #reuse(file: RepositoryFile): Promise<boolean> {
    const donors = await donorsOf(this.tools.donors, this.#snapshot, file, (error) => { this.#refused.push(LeaseholdError.from(error).message); });
    for (const donor of donors) {
      if (!await this.#hasHash(donor.path, file)) continue;
      this.meter.begin('checking', `using what ${donor.program} has of it`);
      const partial = this.#partials.freshPath(wantedHash(file).hex);
      try {
        await link(donor.path, partial);
        await this.#place(partial, file);
      } catch (error) {
        // Other volumes, and file systems and users that may not link.
        if (!['EXDEV', 'EPERM', 'EMLINK', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES'].includes(codeOf(error))) throw error;
        if (!await this.#copy(donor.path, file)) continue;
      }
      this.#reusedBytes += file.sizeBytes ?? 0;
      return true;
    }
    return false;
  }

  async #copy(from: string, file: RepositoryFile): Promise<boolean> {
    await this.#requireRoom([file]);
    const { path } = await this.#partials.claim(wantedHash(file).hex);
    const { algorithm, hex } = wantedHash(file);
    const outcome = await this.tools.threads.run({ kind: 'copy', from, path, sizeBytes: file.sizeBytes ?? 0, algorithm }, this.signal, (control) => { this.meter.follow(file.path, control); });
    if (outcome.kind === 'done' && outcome.hex === hex) {
      await this.#place(path, file);
      return true;
    }
    await rm(path, { force: true });
    return false;
  }

  async #hasHash(path: string, file: RepositoryFile): Promise<boolean> {
    this.meter.begin('checking', `checking ${file.path}`);
    const { algorithm, hex } = wantedHash(file);
    const outcome = await this.tools.threads.run({ kind: 'hash', path, sizeBytes: file.sizeBytes ?? 0, algorithm }, this.signal);
    if (outcome.kind === 'failed') throw new LeaseholdError(outcome.code, outcome.details);
    return outcome.kind === 'done' && outcome.hex === hex;
  }

  /** What is still to come must fit on the volume that receives it. */
  async #requireRoom(missing: readonly RepositoryFile[]): Promise<void> {
    const neededBytes = await this.#missingBytes(missing);
    if (freeBytesAt(this.#folder) >= neededBytes) return;
    await emptyQuarantine(this.tools.store.layout, this.#snapshot.repository);
    this.#keptAt = null;
    if (freeBytesAt(this.#folder) < neededBytes) throw diskFull(this.#folder, neededBytes);
  }

  /** What is still to come of these files. */
  async #missingBytes(missing: readonly RepositoryFile[]): Promise<number> {
    const lefts = await Promise.all(missing.map(async (file) => Math.min(file.sizeBytes ?? 0, await this.#partials.leftBytes(wantedHash(file).hex))));
    return sum(missing) - lefts.reduce((total, bytes) => total + bytes, 0);
  }

  async #fetchAll(missing: readonly RepositoryFile[]): Promise<void> {
    const { client, threads, limits } = this.tools;
    const fetcher = new Fetcher({ client, threads, limits, partials: this.#partials, repository: this.inspection.repository, signal: this.signal, onTask: (file, control) => { this.meter.follow(file.path, control); } });
    // Large ones first: the small ones fill what they leave.
    const queue = [...missing].sort((one, other) => (other.sizeBytes ?? 0) - (one.sizeBytes ?? 0));
    const failed: unknown[] = [];
    const open = new Set(missing);
    const worker = async (): Promise<void> => {
      for (let file = queue.shift(); file !== undefined && failed.length === 0; file = queue.shift()) {
        try {
          const { path, fetchedBytes } = await fetcher.fetch(file);
          await this.#place(path, file);
          open.delete(file);
          this.#downloadedBytes += fetchedBytes;
        } catch (error) {
          failed.push(error);
        }
      }
    };
    await Promise.all(Array.from({ length: threads.atOnce }, worker));
    // The room that went while it was fetched is told for all that is still missing.
    if (failed.some(isFull)) throw diskFull(this.#folder, await this.#missingBytes([...open]), failed.find(isFull));
    if (failed.length > 0) throw failed[0];
  }

  /** From a partial file to its name: whole, checked and on the disk. A link that stands in its place is replaced, not followed. */
  async #place(partial: string, file: RepositoryFile): Promise<void> {
    const path = await this.#pathOf(file);
    await makeFolder(this.tools.store.layout.root, dirname(path));
    await renameDurably(partial, path);
    this.meter.finish(file.path, file.sizeBytes ?? 0);
  }

  #marker(before: Marker | null): Marker {
    const { profile, files } = this.inspection;
    const own = files.map(stagedFile);
    const others = (before?.files ?? []).filter(({ path }) => !own.some((file) => file.path === path));
    return {
      marker_version: 2, repository: profile.repository, revision: profile.revision, completed_at_unix: Math.floor(Date.now() / 1_000),
      files: [...others, ...own], profiles: { ...before?.profiles, [profile.id]: own.map(({ path }) => path) },
    };
  }

  #pathOf({ path }: RepositoryFile): Promise<string> {
    return this.tools.store.pathIn(this.#snapshot, path);
  }

  #cached(): StageResult {
    this.meter.expect(1, sum(this.inspection.files));
    this.meter.finish('', sum(this.inspection.files));
    this.meter.begin('cached', 'everything is here already');
    return this.#result();
  }

  #result(): StageResult {
    return {
      profileId: this.inspection.profile.id, path: this.#folder, downloaded: this.#downloadedBytes > 0,
      downloadedBytes: this.#downloadedBytes, reusedBytes: this.#reusedBytes, refused: this.#refused, keptAt: this.#keptAt,
    };
  }
}

function sum(files: readonly RepositoryFile[]): number {
  return files.reduce((total, { sizeBytes }) => total + (sizeBytes ?? 0), 0);
}
