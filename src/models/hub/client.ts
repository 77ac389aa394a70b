/** A hub, read: one question to resolve a repository, and from then on everything by its commit. */
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { exchange, readBody, unreachable, type Answer } from './exchange.js';
import { Patience, realPauses, type Pauses } from './patience.js';
import { refusalOf, type Asked } from './refusal.js';
import { filesOfPage, invalid, listingBytesMax, nextPage, readRepository, treePagesMax, type Repository, type RepositoryFile } from './repository.js';
import { Turns } from '../threads/turns.js';
import type { HubSettings } from './settings.js';

export type HubLimits = Pick<Limits, 'hubAnswerMs' | 'hubSilentMs' | 'hubAttemptsMax' | 'hubPauseMaxMs' | 'hubReadsMax'>;

export interface HubOptions {
  readonly settings: HubSettings;
  readonly limits: HubLimits;
  readonly pauses?: Pauses;
  readonly signal?: AbortSignal;
}

export class HubClient {
  readonly settings: HubSettings;
  readonly #limits: HubLimits;
  readonly #signal: AbortSignal | undefined;
  readonly #patience: Patience;
  readonly #turns: Turns;

  constructor({ settings, limits, pauses = realPauses, signal }: HubOptions) {
    this.settings = settings;
    this.#limits = limits;
    this.#signal = signal;
    this.#patience = new Patience(limits, pauses);
    this.#turns = new Turns(limits.hubReadsMax);
  }

  /** Commit, files and security status in one request. Rejects with one error each for gated, private, missing, unknown revision, unreachable. */
  async resolve(name: string, revision: string | null): Promise<Repository> {
    const asked = { repository: name, revision: revision ?? 'main', file: null };
    const url = `${this.settings.endpoint}/api/models/${name}/revision/${encodeURIComponent(asked.revision)}?blobs=true&securityStatus=true`;
    const text = await this.#whole(url, asked, {}, listingBytesMax, () => invalid(name, `its listing is longer than ${String(listingBytesMax)} bytes`));
    const repository = readRepository(text.toString('utf8'), name, revision);
    // Some mirrors leave out what `blobs` asks for.
    const told = repository.files.every(({ sizeBytes, sha256, gitSha1 }) => sizeBytes !== null && (sha256 ?? gitSha1) !== null);
    return told ? repository : { ...repository, files: await this.#tree(repository) };
  }

  /** A small file, whole; `tooLong` makes the error for one that is longer than `bytesMax`. */
  async read(repository: Repository, path: string, bytesMax: number, tooLong: () => LeaseholdError): Promise<Buffer> {
    return this.#whole(this.fileUrl(repository, path), askedFile(repository, path), {}, bytesMax, tooLong);
  }

  /** Exactly `length` bytes of a file. A hub that knows no ranges is not made to send the whole file. */
  async readRange(repository: Repository, { path, sizeBytes }: RepositoryFile, offset: number, length: number): Promise<Buffer> {
    const url = this.fileUrl(repository, path);
    const range = { range: `bytes=${String(offset)}-${String(offset + length - 1)}` };
    const wrong = (reason: string): LeaseholdError => invalid(repository.name, `asked for bytes ${String(offset)} to ${String(offset + length - 1)} of ${path}, ${reason}`);
    return this.#asking(url, askedFile(repository, path), range, async (answer) => {
      const whole = answer.status === 200 && offset === 0 && length === sizeBytes;
      const said = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(answer.headers['content-range'] ?? '');
      if (!whole && (answer.status !== 206 || Number(said?.[1]) !== offset || Number(said?.[2]) !== offset + length - 1)) {
        answer.body.destroy();
        throw wrong(`it sends ${String(answer.status)} ${answer.headers['content-range'] ?? 'without a range'}`);
      }
      const bytes = await readBody(answer, length, () => wrong('it sends more'));
      if (bytes.length !== length) throw unreachable(url, `the connection ended after ${String(bytes.length)} of ${String(length)} bytes`);
      return bytes;
    });
  }

  /** Where a file of the commit lies. */
  fileUrl({ name, commit }: Pick<Repository, 'name' | 'commit'>, path: string): string {
    return `${this.settings.endpoint}/${name}/resolve/${commit}/${path.split('/').map(encodeURIComponent).join('/')}`;
  }

  /** Runs `attempt` again for what the network or a busy hub does to it, keeping the pauses that all keep. */
  patiently<T>(attempt: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#patience.run(attempt, signal);
  }

  /** The pause before another try of a file that came wrong. */
  pause(tries: number, signal?: AbortSignal): Promise<void> {
    return this.#patience.pause(tries, signal);
  }

  /** The error that an answer about a file means. */
  refusal(answer: { readonly status: number; readonly headers: Readonly<Record<string, string>> }, repository: Repository, path: string): LeaseholdError {
    return refusalOf(answer, askedFile(repository, path), this.settings) ?? invalid(repository.name, `it answers ${String(answer.status)}`);
  }

  /** Page by page, as long as each names the next; all of them together take no more than a listing may. */
  async #tree({ name, commit }: Repository): Promise<readonly RepositoryFile[]> {
    const { listFiles } = await import('@huggingface/hub');
    const files: RepositoryFile[] = [];
    const seen = new Set<string>();
    let leftBytes = listingBytesMax;
    // The library reads what it is given as it comes: nothing is given to it that was not looked at.
    const fetch = async (asked: string | URL | Request): Promise<Response> => {
      const url = new URL(asked instanceof Request ? asked.url : asked).href;
      if (seen.has(url) || seen.size === treePagesMax) throw invalid(name, `its tree has no end after ${String(seen.size)} pages`);
      seen.add(url);
      return this.#asking(url, { repository: name, revision: commit, file: null }, {}, async (answer) => {
        const page = await readBody(answer, leftBytes, () => invalid(name, `its tree is longer than ${String(listingBytesMax)} bytes`));
        leftBytes -= page.length;
        files.push(...filesOfPage(page.toString('utf8'), name));
        const next = nextPage(answer.headers['link'], url, name);
        return new Response('[]', { headers: next === null ? {} : { link: `<${next}>; rel="next"` } });
      });
    };
    const pages = listFiles({ repo: { type: 'model', name }, revision: commit, recursive: true, hubUrl: this.settings.endpoint, fetch });
    while (!(await pages.next()).done);
    return files;
  }

  #whole(url: string, asked: Asked, headers: Readonly<Record<string, string>>, bytesMax: number, tooLong: () => LeaseholdError): Promise<Buffer> {
    return this.#asking(url, asked, headers, (answer) => readBody(answer, bytesMax, tooLong));
  }

  /** One request and the reading of its answer, tried again as often as patience has it. */
  #asking<T>(url: string, asked: Asked, headers: Readonly<Record<string, string>>, use: (answer: Answer) => Promise<T>): Promise<T> {
    const { settings } = this;
    if (settings.offline) throw new LeaseholdError('hub_unreachable', { endpoint: settings.endpoint, reason: 'HF_HUB_OFFLINE says not to ask it' });
    const { hubAnswerMs: answerMs, hubSilentMs: silentMs } = this.#limits;
    return this.#patience.run(() => this.#turns.take(async () => {
      const answer = await exchange({ url, headers, token: settings.token, answerMs, silentMs, ...this.#signal === undefined ? {} : { signal: this.#signal } });
      const refusal = refusalOf(answer, asked, settings);
      if (refusal !== null) {
        answer.body.destroy();
        throw refusal;
      }
      try {
        return await use(answer);
      } catch (error) {
        throw error instanceof LeaseholdError || this.#signal?.aborted === true ? error : unreachable(url, `the answer broke off (${(error as Error).message})`, error);
      }
    }, this.#signal), this.#signal);
  }
}

function askedFile({ name, commit, gated }: Repository, file: string): Asked {
  return { repository: name, revision: commit, file, gated };
}
