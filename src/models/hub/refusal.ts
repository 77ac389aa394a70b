/** What a hub's answer other than 200 means. Gated, private, missing and busy are four things. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { Answer } from './exchange.js';
import { BusyHub, retryAfterMs } from './patience.js';
import { tokenHint, type HubSettings } from './settings.js';

export interface Asked {
  readonly repository: string;
  readonly revision: string;
  /** Null: the repository itself. */
  readonly file: string | null;
  /** The hub has said that the repository is gated. */
  readonly gated?: boolean;
}

/** A file that the listing of a commit has, and the hub does not deliver: the commit is gone. */
export class FileGone extends LeaseholdError {
  constructor({ repository, revision, file }: Asked) {
    super('commit_gone', { repository, revision, file: file ?? 'the listing', again: 'nothing yet' });
  }
}

/** The error for an answer that is no success; null for 2xx. */
export function refusalOf({ status, headers }: Pick<Answer, 'status' | 'headers'>, asked: Asked, settings: HubSettings): LeaseholdError | null {
  if (status >= 200 && status < 300) return null;
  const { repository, revision, file } = asked;
  const said = String(headers['x-error-code'] ?? '');
  const details = { repository, endpoint: settings.endpoint, hint: tokenHint(settings), reason: `the hub answers ${String(status)}${said === '' ? '' : ` ${said}`}` };
  if (status === 429 || status === 408 || status >= 500) return new BusyHub(settings.endpoint, status, retryAfterMs(headers['retry-after'], Date.now()));
  const denied = status === 401 || status === 403;
  if (said === 'GatedRepo' || (denied && asked.gated === true)) return new LeaseholdError('repository_gated', { ...details, page: `${settings.endpoint}/${repository}` });
  if (said === 'RevisionNotFound' && file === null) return new LeaseholdError('revision_missing', { repository, revision });
  if (denied) return new LeaseholdError('repository_private', details);
  if (status === 404) return file === null ? new LeaseholdError('repository_missing', details) : new FileGone(asked);
  return new LeaseholdError('hub_answer_invalid', { repository, reason: `it answers ${String(status)}` });
}
