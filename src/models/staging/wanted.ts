/** The hash that a file is known by. */
import type { RepositoryFile } from '../hub/repository.js';
import type { WantedHash } from './task.js';

/** An inspection lets no file through that has neither. */
export function wantedHash({ path, sha256, gitSha1 }: RepositoryFile): WantedHash {
  if (sha256 !== null) return { algorithm: 'sha256', hex: sha256 };
  if (gitSha1 !== null) return { algorithm: 'git', hex: gitSha1 };
  throw new Error(`${path} has no hash`);
}
