/**
 * A hub on this machine that speaks the public API: model info with blobs and security status, tree, resolve with a
 * redirect of large files to a storage host of another origin, ranges, etags. It misbehaves as it is told (faults.ts).
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HubFile {
  readonly path: string;
  readonly bytes: Buffer;
  /** Stored as a large file: named by its sha256, delivered by the storage host. */
  readonly large: boolean;
}

export interface HubCommit {
  readonly files: readonly HubFile[];
}

export interface HubRepository {
  readonly commits: Map<string, HubCommit>;
  /** Branches and tags. */
  readonly refs: Map<string, string>;
  gated: boolean | string;
  private: boolean;
  /** Added to the answer about the model, over what is there. */
  info: Record<string, unknown>;
}

export interface HubRequest {
  readonly method: string;
  /** Decoded, with its query. */
  readonly path: string;
  readonly range: string | null;
  readonly token: string | null;
  /** It reached the storage host. */
  readonly storage: boolean;
}

/** What a fault is given: the request, and what would have been delivered. */
export interface Delivery {
  readonly request: HubRequest;
  readonly response: ServerResponse;
  readonly file: HubFile | null;
}

/** Answers in the server's place; false: not this time. */
export type Fault = (delivery: Delivery) => boolean | Promise<boolean>;

interface PlannedFault {
  readonly matches: RegExp;
  readonly fault: Fault;
  left: number;
}

export interface TestHub {
  readonly endpoint: string;
  readonly storage: string;
  readonly requests: HubRequest[];
  readonly repositories: Map<string, HubRepository>;
  /** Adds or moves a branch of a repository to a commit made of these files, and tells the commit. */
  publish(name: string, files: readonly HubFile[], branch?: string): string;
  /** The next `times` requests whose method and path match are answered by `fault`. */
  fault(matches: RegExp, fault: Fault, times?: number): void;
  /** Bytes of weights and other files that left, without listings. */
  readonly sentBytes: number;
  close(): Promise<void>;
}

export const validToken = 'hf_valid';

export function small(path: string, content: string | Buffer): HubFile {
  return { path, bytes: Buffer.from(content), large: false };
}

export function large(path: string, bytes: Buffer): HubFile {
  return { path, bytes, large: true };
}

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
export const gitSha1 = (bytes: Uint8Array): string => createHash('sha1').update(`blob ${String(bytes.length)}\0`).update(bytes).digest('hex');

export async function startHub(): Promise<TestHub> {
  const repositories = new Map<string, HubRepository>();
  const requests: HubRequest[] = [];
  const faults: PlannedFault[] = [];
  const sent = { bytes: 0 };
  const serve = (storage: boolean) => async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const request = requestOf(incoming, storage);
    requests.push(request);
    const file = fileOf(repositories, request);
    for (const planned of faults) {
      if (planned.left === 0 || !planned.matches.test(`${request.method} ${request.path}`)) continue;
      planned.left--;
      if (await planned.fault({ request, response, file })) return;
    }
    answer(request, response);
  };
  const answer = (request: HubRequest, response: ServerResponse): void => {
    if (request.storage) {
      const wanted = request.path.split('/').at(-1) ?? '';
      const file = [...repositories.values()].flatMap(({ commits }) => [...commits.values()].flatMap(({ files }) => files)).find(({ bytes, large: isLarge }) => isLarge && sha256(bytes) === wanted);
      if (file === undefined) refuse(response, 404, 'EntryNotFound');
      else sent.bytes += sendFile(request, response, file.bytes, `"${wanted}"`);
      return;
    }
    const [, name = '', kind = '', revision = '', path = ''] = /^\/(?:api\/models\/)?([^/]+\/[^/]+)\/(revision|tree|resolve)\/([^/?]+)(?:\/([^?]+))?/.exec(request.path) ?? [];
    const repository = repositories.get(name);
    const known = request.token === validToken;
    if (repository === undefined || (repository.private && !known)) { refuse(response, known ? 404 : 401, 'RepoNotFound'); return; }
    const commit = repository.refs.get(decodeURIComponent(revision)) ?? revision;
    if (kind === 'resolve' && repository.gated !== false && !known) { refuse(response, request.token === null ? 401 : 403, 'GatedRepo'); return; }
    const content = repository.commits.get(commit);
    if (kind === 'revision' && (content !== undefined || repository.info['sha'] !== undefined)) { sendInfo(response, name, commit, content ?? { files: [] }, repository); return; }
    if (content === undefined) { refuse(response, 404, 'RevisionNotFound'); return; }
    if (kind === 'tree') { sendTree(response, content); return; }
    const file = content.files.find((each) => each.path === path);
    if (file === undefined) { refuse(response, 404, 'EntryNotFound'); return; }
    sent.bytes += file.large ? redirect(response, file, commit, hub.storage) : sendFile(request, response, file.bytes, `"${gitSha1(file.bytes)}"`);
  };
  const servers = await Promise.all([listen(serve(false)), listen(serve(true))]);
  const [endpoint, storage] = servers.map((server) => `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`) as [string, string];
  const hub: TestHub = {
    endpoint, storage, requests, repositories,
    publish(name, files, branch = 'main') {
      const repository = repositories.get(name) ?? { commits: new Map(), refs: new Map(), gated: false, private: false, info: {} };
      const commit = createHash('sha1').update(JSON.stringify(files.map(({ path, bytes }) => [path, sha256(bytes)]))).digest('hex');
      repositories.set(name, repository);
      repository.commits.set(commit, { files });
      repository.refs.set(branch, commit);
      return commit;
    },
    fault(matches, fault, times = 1) { faults.push({ matches, fault, left: times }); },
    get sentBytes() { return sent.bytes; },
    async close() {
      await Promise.all(servers.map((server) => new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      })));
    },
  };
  return hub;
}

function listen(handler: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<Server> {
  const server = createServer((request, response) => {
    handler(request, response).catch((error: unknown) => { response.destroy(error as Error); });
  });
  return new Promise((resolve) => { server.listen(0, '127.0.0.1', () => { resolve(server); }); });
}

function requestOf({ method = '', url = '', headers }: IncomingMessage, storage: boolean): HubRequest {
  const token = headers.authorization?.replace(/^Bearer /, '') ?? null;
  return { method, path: url.split('/').map((part) => (part.includes('?') ? part : decodeURIComponent(part).replaceAll('/', '%2F'))).join('/'), range: headers.range ?? null, token, storage };
}

function fileOf(repositories: Map<string, HubRepository>, { path, storage }: HubRequest): HubFile | null {
  const wanted = path.split('/').at(-1) ?? '';
  const [, name = '', file = ''] = /^\/([^/]+\/[^/]+)\/resolve\/[^/]+\/(.+)$/.exec(path) ?? [];
  const all = storage ? [...repositories.values()] : [repositories.get(name)].flatMap((each) => each ?? []);
  const files = all.flatMap(({ commits }) => [...commits.values()].flatMap((commit) => commit.files));
  return files.find((each) => (storage ? each.large && sha256(each.bytes) === wanted : each.path === file)) ?? null;
}

export function refuse(response: ServerResponse, status: number, code: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-error-code': code, ...headers }).end(JSON.stringify({ error: code }));
}

function sendInfo(response: ServerResponse, name: string, commit: string, { files }: HubCommit, { gated, private: isPrivate, info }: HubRepository): void {
  const siblings = files.map(({ path, bytes, large: isLarge }) => ({
    rfilename: path, size: bytes.length, blobId: gitSha1(bytes), ...isLarge ? { lfs: { sha256: sha256(bytes), size: bytes.length, pointerSize: 135 } } : {},
  }));
  response.writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ id: name, sha: commit, private: isPrivate, gated, siblings, securityRepoStatus: { scansDone: true, filesWithIssues: [] }, ...info }));
}

function sendTree(response: ServerResponse, { files }: HubCommit): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(files.map(({ path, bytes, large: isLarge }) => ({
    type: 'file', path, size: bytes.length, oid: gitSha1(bytes), ...isLarge ? { lfs: { oid: sha256(bytes), size: bytes.length, pointerSize: 135 } } : {},
  }))));
}

function redirect(response: ServerResponse, { bytes }: HubFile, commit: string, storage: string): number {
  const hash = sha256(bytes);
  response.writeHead(302, { location: `${storage}/blobs/${hash}`, 'x-linked-etag': `"${hash}"`, 'x-linked-size': String(bytes.length), 'x-repo-commit': commit }).end();
  return 0;
}

/** The whole, or the range that was asked for. */
export function sendFile({ range, method }: HubRequest, response: ServerResponse, bytes: Buffer, etag: string): number {
  const [, from = '', to = ''] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
  const headers = { etag, 'accept-ranges': 'bytes' };
  const start = Number(from);
  const end = to === '' ? bytes.length - 1 : Math.min(Number(to), bytes.length - 1);
  if (range !== null && start >= bytes.length) {
    response.writeHead(416, { ...headers, 'content-range': `bytes */${String(bytes.length)}` }).end();
    return 0;
  }
  const part = range === null ? bytes : bytes.subarray(start, end + 1);
  response.writeHead(range === null ? 200 : 206, { ...headers, 'content-length': String(part.length), ...range === null ? {} : { 'content-range': `bytes ${String(start)}-${String(end)}/${String(bytes.length)}` } });
  if (method === 'HEAD') response.end();
  else response.end(part);
  return part.length;
}
