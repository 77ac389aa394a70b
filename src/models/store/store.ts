/** What is staged on this machine: found, listed, checked and removed, without a network. */
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { LeaseholdError } from '../../../protocol/index.js';
import { curatedProfiles, shippedFolder } from '../profile/curated.js';
import type { Policy } from '../policy/policy.js';
import { readProfileManifest, readUnsealedProfile } from '../profile/read.js';
import { generatedIdShape, type Profile, type ProfileManifest } from '../profile/profile.js';
import { pullAgain, readSealed, sealed } from '../profile/seal.js';
import { isCommit, referenceText, type HubReference } from '../reference.js';
import { requireFileSystem } from './file-system.js';
import { codeOf, isFolderWithin, makeFolder, plainFileBytes, readTextIfThere, unusable, writeJsonDurably } from './files.js';
import { Layout, type Snapshot } from './layout.js';
import { readMarker, type Marker, type StagedFile } from './marker.js';

/** A profile and whether everything that it needs is there. */
export interface StoredModel {
  readonly manifest: ProfileManifest;
  /** Null: staged. */
  readonly missing: string | null;
  readonly files: readonly StagedFile[];
  /** Of the snapshot. */
  readonly folder: string;
}

interface ReferenceRecord {
  readonly reference: string;
  readonly profile_id: string;
  readonly revision: string;
  readonly resolved_at_unix: number;
}

export class ModelStore {
  readonly layout: Layout;
  readonly policy: Policy;

  constructor(root: string, policy: Policy) {
    this.layout = new Layout(root);
    this.policy = policy;
  }

  /** Makes the root. Rejects with `store_unusable` where names can be made twice or not replaced. */
  prepare(): Promise<void> {
    return requireFileSystem(this.layout.root);
  }

  /** The folder of a snapshot, made, and no link on the way. */
  async snapshotFolder(snapshot: Snapshot): Promise<string> {
    const folder = this.layout.snapshotFolder(snapshot);
    await makeFolder(this.layout.root, folder);
    return folder;
  }

  /** Rejects with `link_refused` where a link stands in the place of the snapshot, or on the way to it. */
  async marker(snapshot: Snapshot): Promise<Marker | null> {
    await isFolderWithin(this.layout.root, this.layout.snapshotFolder(snapshot));
    return readMarker(this.layout.marker(snapshot), snapshot);
  }

  /** Where a file of a snapshot is, or would be. Rejects with `link_refused` where a link stands on the way to it; in its own place one may. */
  async pathIn(snapshot: Snapshot, file: string): Promise<string> {
    const path = join(this.layout.snapshotFolder(snapshot), ...file.split('/'));
    await isFolderWithin(this.layout.root, dirname(path));
    return path;
  }

  /** What an engine is given for a model that is staged: the (first) GGUF, else the folder of the snapshot. Rejects as `pathIn`. */
  async sourceOf({ manifest: { profile }, folder }: Pick<StoredModel, 'manifest' | 'folder'>): Promise<string> {
    const [first] = profile.weight_files;
    return first === undefined ? folder : this.pathIn({ repository: profile.repository, commit: profile.revision }, first);
  }

  /** Why a profile cannot be loaded from here, or null; and what it needs, where that is known. */
  async state({ id, repository, revision, weight_files: weights, projector_file: projector }: Profile): Promise<Pick<StoredModel, 'missing' | 'files'>> {
    const snapshot = { repository, commit: revision };
    const marker = await this.marker(snapshot);
    const wanted = marker?.profiles[id];
    if (marker === null || wanted === undefined) return { missing: 'it was never staged to the end', files: [] };
    const files = marker.files.filter(({ path }) => wanted.includes(path));
    // What the profile loads, too, whatever the marker says that it needs.
    for (const path of new Set([...wanted, ...weights, ...projector === '' ? [] : [projector]])) {
      const file = files.find((each) => each.path === path);
      const bytes = file === undefined ? null : await plainFileBytes(await this.pathIn(snapshot, path));
      if (file === undefined || bytes === null) return { missing: `${path} is not there`, files };
      if (bytes !== file.size_bytes) return { missing: `${path} has ${String(bytes)} bytes instead of ${String(file.size_bytes)}`, files };
    }
    return { missing: null, files };
  }

  /** Stores a generated profile; `created` is false where the same is there, sealed. Throws `profile_collision` where another is, and what is wrong with one that was edited: neither is written over. */
  async saveProfile(manifest: ProfileManifest): Promise<{ readonly path: string; readonly created: boolean }> {
    const { id } = manifest.profile;
    const path = this.layout.profileFile(id);
    const text = await this.#profileText(path);
    const old = text === null ? null : readUnsealedProfile(text, path, id, this.policy);
    const there = text === null ? null : old ?? readProfileManifest(text, path, id, this.policy).profile;
    if (there !== null && !isDeepStrictEqual(there, manifest.profile)) throw new LeaseholdError('profile_collision', { profile: id, path });
    if (there !== null && old === null) return { path, created: false };
    await makeFolder(this.layout.root, dirname(path));
    await writeJsonDurably(path, sealed(manifest));
    return { path, created: true };
  }

  /** Remembers what a reference means. One that names a commit says nothing of any branch (B155). */
  async saveReference(reference: HubReference, profile: Profile, atUnix: number): Promise<void> {
    const text = referenceText(reference);
    const path = this.layout.reference(reference.repository, text);
    await makeFolder(this.layout.root, dirname(path));
    await writeJsonDurably(path, sealed({ reference: text, profile_id: profile.id, revision: profile.revision, resolved_at_unix: atUnix } satisfies ReferenceRecord));
  }

  /** The profile that a reference meant when it was last resolved; where it never was, the only one of its repository that is here. */
  async findReference(reference: HubReference): Promise<StoredModel> {
    const text = referenceText(reference);
    const path = this.layout.reference(reference.repository, text);
    await isFolderWithin(this.layout.root, dirname(path));
    const record = await readTextIfThere(path);
    if (record !== null) return this.find(profileIn(record, path, text));
    const models = await this.list();
    const fits = models.filter(({ manifest: { profile } }) => profile.repository === reference.repository
      && (reference.revision === null || (isCommit(reference.revision) && profile.revision === reference.revision))
      && (reference.selection === null || profile.quantization_method === reference.selection.toLowerCase()));
    const [only] = fits;
    if (only === undefined || fits.length > 1) throw new LeaseholdError('profile_unknown', { profile: text, known: names(fits.length > 1 ? fits : models) });
    return only;
  }

  /** By the id of a generated profile. Throws `profile_unknown`, or what is wrong with its file. */
  async find(id: string): Promise<StoredModel> {
    const path = this.layout.profileFile(id);
    const text = await this.#profileText(path);
    if (text === null) throw new LeaseholdError('profile_unknown', { profile: id, known: names(await this.list()) });
    return this.#stored(readProfileManifest(text, path, id, this.policy));
  }

  /** A curated profile, with the folder of its files where they ship. */
  async findCurated(id: string): Promise<{ readonly profile: Profile; readonly folder: string; readonly missing: string | null }> {
    const profile = curatedProfiles().get(id);
    if (profile === undefined) throw new LeaseholdError('profile_unknown', { profile: id, known: [...curatedProfiles().keys()].join(', ') });
    const shipped = shippedFolder(profile);
    if (shipped !== null) return { profile, folder: shipped, missing: null };
    return { profile, folder: this.layout.snapshotFolder({ repository: profile.repository, commit: profile.revision }), missing: (await this.state(profile)).missing };
  }

  /** Every profile that is stored and can be read; `onFault` hears of those that cannot. */
  async list(onFault: (error: LeaseholdError) => void = () => undefined): Promise<readonly StoredModel[]> {
    await isFolderWithin(this.layout.root, this.layout.profilesFolder);
    const ids = await readdir(this.layout.profilesFolder).catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT') return [];
      throw unusable(error, this.layout.root);
    });
    const found: StoredModel[] = [];
    for (const id of ids.filter((name) => generatedIdShape.test(name)).sort()) {
      const path = this.layout.profileFile(id);
      try {
        const text = await this.#profileText(path);
        if (text === null) continue;
        found.push(await this.#stored(readProfileManifest(text, path, id, this.policy)));
      } catch (error) {
        onFault(LeaseholdError.from(error));
      }
    }
    return found;
  }

  async #profileText(path: string): Promise<string | null> {
    await isFolderWithin(this.layout.root, dirname(path));
    return readTextIfThere(path);
  }

  async #stored(manifest: ProfileManifest): Promise<StoredModel> {
    const { repository, revision } = manifest.profile;
    return { manifest, ...await this.state(manifest.profile), folder: this.layout.snapshotFolder({ repository, commit: revision }) };
  }
}

/** The id of the profile that a reference meant, out of what was remembered of it and of no other. Throws as `readSealed`. */
function profileIn(record: string, path: string, reference: string): string {
  const { reference: of, profile_id: id } = readSealed(record, path, reference) as Partial<ReferenceRecord>;
  if (of === reference && typeof id === 'string') return id;
  throw new LeaseholdError('profile_invalid', { profile: `${reference} (${path})`, reason: 'what was remembered there is of another reference' }, { help: pullAgain });
}

function names(models: readonly StoredModel[]): string {
  return models.map(({ manifest }) => manifest.requested_reference).join(', ') || 'none';
}
