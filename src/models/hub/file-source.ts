/** A file on a hub as bytes that can be read anywhere, with few requests: a first read brings more than it was asked for. */
import type { HubClient } from './client.js';
import type { Repository, RepositoryFile } from './repository.js';

/** What the first read brings. Most headers are whole in it. */
export const firstReadBytes = 128 * 1024;
/** A header read in small steps is not asked for in as many: each request brings as much again as there is, up to this. */
const aheadBytesMax = 4 * 1024 * 1024;

/** A `ByteSource` (src/models/formats) over ranges of one file at one commit. What lies within what was read already costs nothing. */
export class HubFileSource {
  readonly name: string;
  readonly sizeBytes: number;
  readonly #client: HubClient;
  readonly #repository: Repository;
  readonly #file: RepositoryFile;
  /** The beginning of the file, as far as it was read. */
  #head = Buffer.alloc(0);

  constructor(client: HubClient, repository: Repository, file: RepositoryFile) {
    this.#client = client;
    this.#repository = repository;
    this.#file = file;
    this.name = `${repository.name}@${repository.commit.slice(0, 8)}/${file.path}`;
    this.sizeBytes = file.sizeBytes ?? 0;
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    const end = offset + length;
    const there = this.#head.length;
    if (end > there) {
      // Far beyond the head: a read by itself.
      if (offset > Math.max(there, firstReadBytes)) return this.#client.readRange(this.#repository, this.#file, offset, length);
      const ahead = there === 0 ? firstReadBytes : there + Math.min(there, aheadBytesMax);
      const until = Math.min(this.sizeBytes, Math.max(end, ahead));
      this.#head = Buffer.concat([this.#head, await this.#client.readRange(this.#repository, this.#file, there, until - there)]);
    }
    return this.#head.subarray(offset, end);
  }
}
