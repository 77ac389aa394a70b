/** What a hub says of a repository at one commit, read without trusting it. */
import { LeaseholdError } from '../../../protocol/index.js';

export interface RepositoryFile {
  /** As the hub names it; not yet known to be safe. */
  readonly path: string;
  /** Null where the hub does not say. */
  readonly sizeBytes: number | null;
  /** Of what is stored as a large file. */
  readonly sha256: string | null;
  /** Of what git itself stores: the hash of its blob. */
  readonly gitSha1: string | null;
}

export interface Repository {
  readonly name: string;
  /** As it was asked for; null: the main branch. */
  readonly requestedRevision: string | null;
  /** 40 lower-case hex digits: every further question names it. */
  readonly commit: string;
  readonly files: readonly RepositoryFile[];
  readonly gated: boolean;
  readonly security: { readonly complete: boolean; readonly flagged: readonly string[] };
}

/** Most bytes of a listing that are read: some 100,000 files. */
export const listingBytesMax = 32 * 1024 * 1024;

/** Of a tree; a hub puts some 1,000 files on one. */
export const treePagesMax = 1_000;

const spokenCharactersMax = 120;

type Fields = Readonly<Record<string, unknown>>;

/** Throws `hub_answer_invalid`, or `revision_unresolved` where no exact commit is named. */
export function readRepository(text: string, name: string, requestedRevision: string | null): Repository {
  const info = parse(text, name);
  const commit = typeof info['sha'] === 'string' ? info['sha'].toLowerCase() : '';
  const wanted = requestedRevision?.toLowerCase() ?? '';
  const another = /^[0-9a-f]{40}$/.test(wanted) && wanted !== commit;
  if (!/^[0-9a-f]{40}$/.test(commit) || another) {
    throw new LeaseholdError('revision_unresolved', { repository: name, revision: requestedRevision ?? 'main', answer: spoken(info['sha'] ?? null) });
  }
  const { siblings } = info;
  if (!Array.isArray(siblings)) throw invalid(name, `it lists no files: where their list belongs stands ${spoken(siblings)}`);
  return {
    name, requestedRevision, commit,
    files: siblings.map((sibling) => fileOf(isFields(sibling) ? sibling : {}, name)),
    gated: info['gated'] !== undefined && info['gated'] !== false && info['gated'] !== null,
    security: securityOf(info),
  };
}

/** One entry of a listing, whichever of its spellings the hub uses. */
export function fileOf(entry: Fields, repository: string): RepositoryFile {
  const path = entry['rfilename'] ?? entry['path'];
  if (typeof path !== 'string') throw invalid(repository, 'a file of it has no name');
  const lfs = isFields(entry['lfs']) ? entry['lfs'] : null;
  const size = lfs?.['size'] ?? entry['size'];
  if (size !== undefined && size !== null && !(Number.isSafeInteger(size) && (size as number) >= 0)) throw invalid(repository, `${spoken(path)} has a size of ${spoken(size)}`);
  return {
    path,
    sizeBytes: typeof size === 'number' ? size : null,
    sha256: lfs === null ? null : hexOf(lfs['sha256'] ?? lfs['oid'], 64),
    // What git stores of a large file is a pointer to it: its hash says nothing of the bytes.
    gitSha1: lfs === null ? hexOf(entry['blobId'] ?? entry['oid'], 40) : null,
  };
}

/** The files of one page of a tree, of which folders are no part. Throws `hub_answer_invalid`. */
export function filesOfPage(text: string, repository: string): readonly RepositoryFile[] {
  const entries = jsonOf(text, repository);
  if (!Array.isArray(entries)) throw invalid(repository, `a page of its tree is no list but ${spoken(entries)}`);
  return entries.flatMap((entry: unknown) => {
    if (!isFields(entry) || typeof entry['type'] !== 'string') throw invalid(repository, `its tree has ${isFields(entry) ? `an entry of the type ${spoken(entry['type'])}` : `${spoken(entry)} for an entry`}`);
    return entry['type'] === 'file' ? [fileOf(entry, repository)] : [];
  });
}

/** Where the next page lies, as the `Link` of the one at `url` says; null: it was the last. A page elsewhere would be given our token. */
export function nextPage(link: string | readonly string[] | undefined, url: string, repository: string): string | null {
  const target = /<([^<>]*)>\s*;\s*rel="?next"?/i.exec(String(link ?? ''))?.[1];
  if (target === undefined) return null;
  const next = URL.canParse(target, url) ? new URL(target, url) : null;
  if (next === null || next.origin !== new URL(url).origin) throw invalid(repository, `the next page of its tree is said to lie at ${next?.origin ?? 'no web address'}`);
  return next.href;
}

/** A scan that has not finished is no finding; one that says nothing has not finished. */
function securityOf(info: Fields): Repository['security'] {
  const status = [info['securityRepoStatus'], info['security_repo_status'], info['securityStatus']].find(isFields) ?? {};
  const listed = [status['filesWithIssues'], status['files_with_issues'], status['issues']].flatMap((list) => (Array.isArray(list) ? list as readonly unknown[] : []));
  return { complete: (status['scansDone'] ?? status['scans_done']) === true, flagged: listed.map((each) => (isFields(each) ? each['path'] : each)).map((path) => (typeof path === 'string' ? path : '?')) };
}

function hexOf(value: unknown, digits: number): string | null {
  const hex = typeof value === 'string' ? value.replace(/^sha256:/, '').toLowerCase() : '';
  return hex.length === digits && /^[0-9a-f]+$/.test(hex) ? hex : null;
}

function parse(text: string, repository: string): Fields {
  const json = jsonOf(text, repository);
  if (isFields(json)) return json;
  throw invalid(repository, `it is no JSON object but ${spoken(json)}`);
}

function jsonOf(text: string, repository: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(repository, `it is no JSON (${(error as Error).message.slice(0, 120)})`, error);
  }
}

/** What a hub said, in few words: what is inside of an object may be as deep and long as it likes. */
function spoken(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `a list of ${String(value.length)}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  return JSON.stringify(typeof value === 'string' ? value.slice(0, spokenCharactersMax) : value);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function invalid(repository: string, reason: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError('hub_answer_invalid', { repository, reason }, cause === undefined ? {} : { cause });
}
