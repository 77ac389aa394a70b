/** Where everything lies below the root of the model store. Weights belong to a repository at a commit, never to a profile. */
import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { generatedIdShape } from '../profile/profile.js';
import { isCommit } from '../reference.js';

export interface Snapshot {
  readonly repository: string;
  /** 40 lower-case hex digits. */
  readonly commit: string;
}

/** `LEASEHOLD_MODELS`, else the user's data folder. Absolute, whatever the process's folder becomes later. */
export function storeRoot(env: NodeJS.ProcessEnv, cwd: string = process.cwd()): string {
  const named = env['LEASEHOLD_MODELS']?.trim() ?? '';
  if (named !== '') return resolve(cwd, named);
  const data = env['XDG_DATA_HOME']?.trim() ?? '';
  return join(data === '' ? join(homedir(), '.local', 'share') : resolve(cwd, data), 'leasehold', 'models');
}

export class Layout {
  readonly root: string;

  constructor(root: string) {
    this.root = resolve(root);
  }

  get profilesFolder(): string {
    return join(this.root, 'llm_generated_profiles');
  }

  get weightsFolder(): string {
    return join(this.root, 'llm_models');
  }

  /** Throws `profile_unknown` for what is no generated id: an id never becomes a path by being believed. */
  profileFile(id: string): string {
    if (!generatedIdShape.test(id)) throw new LeaseholdError('profile_unknown', { profile: JSON.stringify(id), known: 'ids are hf- and 64 hex digits' });
    return join(this.profilesFolder, id, 'profile.json');
  }

  repositoryFolder(repository: string): string {
    return join(this.weightsFolder, `repo-${sha256(repository)}`);
  }

  snapshotFolder({ repository, commit }: Snapshot): string {
    if (!isCommit(commit)) throw new LeaseholdError('profile_invalid', { profile: repository, reason: 'its revision is no commit' });
    return join(this.repositoryFolder(repository), commit);
  }

  /** Says what is there, whole and checked; written last. */
  marker(snapshot: Snapshot): string {
    return join(this.snapshotFolder(snapshot), '.leasehold-complete.json');
  }

  lock({ repository, commit }: Snapshot): string {
    return join(this.repositoryFolder(repository), `.${commit}.download.lock`);
  }

  /** Files that are still arriving: on the volume where they will stay. */
  partials(repository: string): string {
    return join(this.repositoryFolder(repository), '.partial');
  }

  /** The last file of it that was found to be wrong. */
  quarantine(repository: string): string {
    return join(this.repositoryFolder(repository), '.quarantine');
  }

  /** What a reference meant when it was last resolved. */
  reference(repository: string, text: string): string {
    return join(this.repositoryFolder(repository), '.references', `${sha256(text)}.json`);
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
