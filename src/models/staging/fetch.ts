/** One file from the hub, as often as it takes: broken transfers continue, wrong bytes begin again, and both have an end. */
import { rm, stat } from 'node:fs/promises';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import type { HubClient } from '../hub/client.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import type { Partials } from './partials.js';
import type { Control, TransferOutcome } from './task.js';
import type { StagingThreads } from './threads.js';
import { wantedHash } from './wanted.js';

export interface FetcherOptions {
  readonly client: HubClient;
  readonly threads: StagingThreads;
  readonly limits: Pick<Limits, 'hubAnswerMs' | 'hubSilentMs' | 'stageAttemptsMax'>;
  readonly partials: Partials;
  readonly repository: Repository;
  readonly signal: AbortSignal;
  readonly onTask: (file: RepositoryFile, control: Control) => void;
}

/** A transfer that brought this much before it broke has not failed: it goes on. */
const progressBytes = 1024 * 1024;

export class Fetcher {
  readonly #options: FetcherOptions;

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  /** Resolves to a partial file that is whole, checked and flushed. What is left of one that failed may be continued. */
  async fetch(file: RepositoryFile): Promise<{ readonly path: string; readonly fetchedBytes: number }> {
    const { client, partials, repository, limits, signal } = this.#options;
    const { hex } = wantedHash(file);
    const { path, sizeBytes: leftBytes } = await partials.claim(hex);
    try {
      for (let tries = 1; ; tries++) {
        const outcome = await this.#try(file, path);
        if (outcome.kind === 'done') return { path, fetchedBytes: Math.max(0, (file.sizeBytes ?? 0) - leftBytes) };
        if (outcome.kind === 'wrong' && tries >= limits.stageAttemptsMax) {
          throw new LeaseholdError('file_corrupt', { repository: repository.name, file: file.path, what: outcome.what === 'hash' ? 'its hash is' : 'it has', actual: outcome.actual, expected: outcome.expected });
        }
        await client.pause(tries, signal);
      }
    } catch (error) {
      throw await this.#failure(error, file, path);
    }
  }

  /** One transfer, repeated for what the network does, for as long as it gets on. */
  async #try(file: RepositoryFile, path: string): Promise<TransferOutcome> {
    for (let before = await bytesOf(path); ;) {
      try {
        return await this.#options.client.patiently(() => this.#transfer(file, path), this.#options.signal);
      } catch (error) {
        const after = await bytesOf(path);
        if (!(error instanceof LeaseholdError) || error.code !== 'hub_unreachable' || this.#options.signal.aborted || after < before + progressBytes) throw error;
        before = after;
      }
    }
  }

  async #transfer(file: RepositoryFile, path: string): Promise<TransferOutcome> {
    const { client, threads, limits, repository, signal, onTask } = this.#options;
    const outcome = await threads.run({
      kind: 'transfer', url: client.fileUrl(repository, file.path), authorization: client.settings.token?.authorization ?? null,
      path, sizeBytes: file.sizeBytes ?? 0, hash: wantedHash(file), answerMs: limits.hubAnswerMs, silentMs: limits.hubSilentMs,
    }, signal, (control) => { onTask(file, control); });
    if (outcome.kind === 'failed') throw new LeaseholdError(outcome.code, outcome.details);
    if (outcome.kind === 'refused') throw client.refusal(outcome, repository, file.path);
    return outcome;
  }

  /** What is there of the file goes on being there; what the network did is told with how far it came. */
  async #failure(error: unknown, file: RepositoryFile, path: string): Promise<unknown> {
    const { partials, repository } = this.#options;
    const doneBytes = await bytesOf(path);
    if (doneBytes === 0) await rm(path, { force: true });
    else await partials.leave(path, wantedHash(file).hex);
    if (!(error instanceof LeaseholdError) || error.code !== 'hub_unreachable') return error;
    return new LeaseholdError('download_failed', { repository: repository.name, file: file.path, reason: error.message.replace(/\.$/, ''), doneBytes, totalBytes: file.sizeBytes }, { cause: error });
  }
}

async function bytesOf(path: string): Promise<number> {
  return (await stat(path)).size;
}
