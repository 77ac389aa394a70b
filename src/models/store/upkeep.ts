/** Checking what is staged byte by byte, and removing it. */
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { lockHolder, withLock } from '../staging/lock.js';
import type { StagingThreads } from '../staging/threads.js';
import { isFolderWithin, plainFileBytes } from './files.js';
import { writeMarker, type Marker, type StagedFile } from './marker.js';
import { openersOf } from './openers.js';
import { emptyQuarantine, setAside } from './quarantine.js';
import type { ModelStore, StoredModel } from './store.js';

export interface UpkeepTools {
  readonly store: ModelStore;
  readonly threads: StagingThreads;
  readonly limits: Limits;
}

export interface Verdict {
  readonly path: string;
  /** Null: of a file that was taken away before, it is not known. */
  readonly sizeBytes: number | null;
  /** Null: as it was staged. */
  readonly fault: string | null;
  /** Where what was wrong is kept, to be looked at; null: it is not. */
  readonly keptAt: string | null;
}

/**
 * Hashes every file of a model. What is wrong is taken away (the last such file is kept aside) and the marker says so, so
 * that no engine loads it and the next pull fetches those files alone.
 */
export async function verifyModel({ store, threads, limits }: UpkeepTools, model: StoredModel, signal: AbortSignal, onFile: (path: string) => void = () => undefined): Promise<readonly Verdict[]> {
  const { profile } = model.manifest;
  const snapshot = { repository: profile.repository, commit: profile.revision };
  if (await store.marker(snapshot) === null) throw notStaged(model, 'it was never staged to the end');
  return withLock({ path: store.layout.lock(snapshot), repository: profile.repository, limits, signal }, async () => {
    const marker = await store.marker(snapshot);
    const wanted = marker?.profiles[profile.id];
    if (marker === null || wanted === undefined) throw notStaged(model, 'it was never staged to the end');
    const verdicts: Verdict[] = [];
    for (const path of wanted) {
      onFile(path);
      const file = marker.files.find((each) => each.path === path);
      if (file === undefined) verdicts.push({ path, sizeBytes: null, fault: notThere, keptAt: null });
      else verdicts.push({ path, sizeBytes: file.size_bytes, fault: await faultOf(threads, await store.pathIn(snapshot, path), file, signal), keptAt: null });
    }
    const wrong = new Set(verdicts.filter(({ fault }) => fault !== null).map(({ path }) => path));
    if (wrong.size > 0) await writeMarker(store.layout.marker(snapshot), { ...marker, files: marker.files.filter(({ path }) => !wrong.has(path)) });
    let kept = { path: '', at: '' };
    for (const path of wrong) {
      const at = await setAside(store.layout, snapshot, await store.pathIn(snapshot, path));
      if (at !== null) kept = { path, at };
    }
    return verdicts.map((verdict) => (verdict.path === kept.path ? { ...verdict, keptAt: kept.at } : verdict));
  });
}

const notThere = 'no file of its own is there';

async function faultOf(threads: StagingThreads, path: string, file: StagedFile, signal: AbortSignal): Promise<string | null> {
  const bytes = await plainFileBytes(path);
  if (bytes === null) return notThere;
  if (bytes !== file.size_bytes) return `it has ${String(bytes)} bytes instead of ${String(file.size_bytes)}`;
  const algorithm = file.sha256 === null ? 'git' : 'sha256';
  const outcome = await threads.run({ kind: 'hash', path, sizeBytes: bytes, algorithm }, signal);
  if (outcome.kind === 'failed') return outcome.details['reason'] ?? outcome.code;
  const expected = file.sha256 ?? file.git_sha1;
  return outcome.kind === 'done' && outcome.hex === expected ? null : `its hash is ${outcome.kind === 'done' ? outcome.hex : '?'} instead of ${String(expected)}`;
}

/**
 * Removes a profile and the files that no other profile needs. Rejects with `model_in_use` while somebody stages its snapshot, `users`
 * names who has it, or a process has one of these files open (B55). Resolves to the bytes that came free.
 */
export async function removeModel({ store, limits }: UpkeepTools, model: StoredModel, users: readonly string[], signal: AbortSignal): Promise<number> {
  const { profile } = model.manifest;
  const snapshot = { repository: profile.repository, commit: profile.revision };
  const lock = store.layout.lock(snapshot);
  const isBegun = await store.marker(snapshot) !== null;
  const holder = users[0] ?? await lockHolder(lock);
  if (holder !== null) throw new LeaseholdError('model_in_use', { profile: model.manifest.requested_reference, holder });
  const withoutProfile = async (): Promise<number> => {
    const marker = await store.marker(snapshot);
    const { left, gone } = marker === null ? { left: null, gone: [] } : without(marker, profile.id);
    const profileFolder = dirname(store.layout.profileFile(profile.id));
    // All that goes is found first: one link on the way, and nothing goes.
    await isFolderWithin(store.layout.root, profileFolder);
    const paths = await Promise.all(gone.map(({ path }) => store.pathIn(snapshot, path)));
    const [opener] = await openersOf(paths);
    if (opener !== undefined) throw new LeaseholdError('model_in_use', { profile: model.manifest.requested_reference, holder: `process ${String(opener)}` });
    // What somebody took away before frees nothing.
    const sizes = await Promise.all(paths.map(plainFileBytes));
    await emptyQuarantine(store.layout, profile.repository);
    await rm(profileFolder, { recursive: true, force: true });
    // Files before the marker: on a full volume it needs the room that they leave. It then names what nobody needs, which is looked for before it is believed.
    for (const path of paths) await rm(path, { recursive: true, force: true });
    if (left !== null && Object.keys(left.profiles).length > 0) await writeMarker(store.layout.marker(snapshot), left);
    else if (left !== null) await rm(model.folder, { recursive: true, force: true });
    return sizes.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0);
  };
  // A profile whose snapshot was never begun has no folder for a lock either.
  return !isBegun ? withoutProfile() : withLock({ path: lock, repository: profile.repository, limits, signal, makesRoom: true }, withoutProfile);
}

function without(marker: Marker, id: string): { readonly left: Marker; readonly gone: readonly StagedFile[] } {
  const profiles = Object.fromEntries(Object.entries(marker.profiles).filter(([other]) => other !== id));
  const needed = new Set(Object.values(profiles).flat());
  return { left: { ...marker, profiles, files: marker.files.filter(({ path }) => needed.has(path)) }, gone: marker.files.filter(({ path }) => !needed.has(path)) };
}

/** Nothing is downloaded because somebody wants to run it: staging is the only way in. */
export function notStaged({ manifest }: Pick<StoredModel, 'manifest'>, reason: string): LeaseholdError {
  return new LeaseholdError('not_staged', { profile: manifest.requested_reference, reference: manifest.requested_reference, reason });
}
