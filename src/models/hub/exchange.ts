/** One HTTP request, redirects followed: what crosses the network, and what never does. */
import { Agent as HttpAgent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { LeaseholdError, durationText } from '../../../protocol/index.js';
import { version } from '../../version.js';

/** What proves who asks: a `Token`, or what of it crossed into a thread. */
export interface Authorization {
  readonly authorization: string;
}

export interface Exchange {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Goes to the origin of `url`, and on no redirect to another. */
  readonly token: Authorization | null;
  /** From sending to the first byte of the answer, a hop. */
  readonly answerMs: number;
  /** Longest silence within the body. */
  readonly silentMs: number;
  readonly signal?: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Of the answer before the first redirect: the hub speaks there of what a storage host delivers. */
  readonly firstHeaders: IncomingHttpHeaders;
  /** Must be read to its end or destroyed. Fails with `hub_unreachable` when it breaks off or falls silent. */
  readonly body: IncomingMessage;
}

const redirectsMax = 5;
const redirects = new Set([301, 302, 303, 307, 308]);
/** Idle connections keep no process alive, and are closed before most servers do. */
const idleConnectionMs = 4_000;
const agents = { 'http:': new HttpAgent({ keepAlive: true, timeout: idleConnectionMs }), 'https:': new HttpsAgent({ keepAlive: true, timeout: idleConnectionMs }) };

/**
 * Rejects with `hub_unreachable` for what the network does, with the signal's reason when it aborts; any status of the
 * last answer is an answer. Bodies come as they lie on the server: a range of compressed bytes would mean nothing.
 */
export async function exchange(wanted: Exchange): Promise<Answer> {
  const origin = new URL(wanted.url).origin;
  let url = new URL(wanted.url);
  let token = wanted.token;
  let firstHeaders: IncomingHttpHeaders | null = null;
  for (let hops = 0; ; hops++) {
    const body = await send(url, token, wanted);
    const status = body.statusCode ?? 0;
    firstHeaders ??= body.headers;
    const { location } = body.headers;
    if (!redirects.has(status) || location === undefined) return { status, headers: body.headers, firstHeaders, body };
    body.destroy();
    if (hops === redirectsMax) throw unreachable(url, 'it redirects in circles');
    url = redirected(url, location);
    // Once elsewhere, a way back could have been chosen by a stranger.
    if (url.origin !== origin) token = null;
  }
}

/** A body of at most `bytesMax`, whole. `tooLong` makes the error for one that is longer. */
export async function readBody(answer: Answer, bytesMax: number, tooLong: () => LeaseholdError): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of answer.body as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > bytesMax) throw tooLong();
      parts.push(part);
    }
  } finally {
    answer.body.destroy();
  }
  return Buffer.concat(parts);
}

function send(url: URL, token: Authorization | null, { headers = {}, answerMs, silentMs, signal }: Exchange): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const secure = url.protocol === 'https:';
    const sent = (secure ? httpsRequest : httpRequest)(url, {
      agent: agents[secure ? 'https:' : 'http:'],
      headers: { 'user-agent': `leasehold/${version()}`, 'accept-encoding': 'identity', ...headers, ...token === null ? {} : { authorization: token.authorization } },
    });
    const abort = (): void => { sent.destroy(signal?.reason as Error); };
    const slow = setTimeout(() => { sent.destroy(unreachable(url, `it did not answer within ${durationText(answerMs)}`)); }, answerMs);
    const settled = (): void => { clearTimeout(slow); };
    signal?.addEventListener('abort', abort, { once: true });
    sent.once('close', () => {
      settled();
      signal?.removeEventListener('abort', abort);
    });
    sent.once('error', (error) => {
      settled();
      reject(signal?.aborted === true || error instanceof LeaseholdError ? error : unreachable(url, reasonOf(error), error));
    });
    sent.once('response', (answer: IncomingMessage) => {
      settled();
      answer.setTimeout(silentMs, () => { answer.destroy(unreachable(url, `no byte came for ${durationText(silentMs)}`)); });
      resolve(answer);
    });
    sent.end();
  });
}

function redirected(from: URL, location: string): URL {
  const to = URL.canParse(location, from.href) ? new URL(location, from) : null;
  if (to === null || (to.protocol !== 'https:' && to.protocol !== 'http:')) throw unreachable(from, 'it redirects to no web address');
  if (from.protocol === 'https:' && to.protocol === 'http:') throw unreachable(from, `it redirects to ${to.host} without encryption`);
  return to;
}

/** `hub_unreachable` for what went wrong with a transfer from `url`. Of a URL only its origin is told: the rest may be signed. */
export function unreachable(url: URL | string, reason: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError('hub_unreachable', { endpoint: new URL(String(url)).origin, reason }, cause === undefined ? {} : { cause });
}

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there', ENOTFOUND: 'its name has no address', EAI_AGAIN: 'its name could not be looked up', ECONNRESET: 'the connection was cut', ETIMEDOUT: 'it does not answer',
  EPIPE: 'the connection was cut', EHOSTUNREACH: 'there is no way to it', ENETUNREACH: 'there is no network to it', ERR_STREAM_PREMATURE_CLOSE: 'the connection was cut', ABORT_ERR: 'the transfer was broken off',
};

/** What an error of the network says to a person. */
export function reasonOf(error: unknown): string {
  const { code = '', message = String(error) } = error as { readonly code?: string; readonly message?: string };
  return reasons[code] ?? (message === '' ? code : message);
}
