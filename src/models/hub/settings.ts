/** Which hub, and as whom: from the environment alone, the way other programs that read the hub take it. */
import { inspect } from 'node:util';
import { LeaseholdError } from '../../../protocol/index.js';

/** A token that shows itself to nobody but the hub it is for: in a log, a message or JSON it is `[token]`. */
export class Token {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The value of an Authorization header. */
  get authorization(): string {
    return `Bearer ${this.#value}`;
  }

  toString(): string {
    return '[token]';
  }

  toJSON(): string {
    return '[token]';
  }

  [inspect.custom](): string {
    return '[token]';
  }
}

export interface HubSettings {
  /** Without a slash at its end. */
  readonly endpoint: string;
  readonly token: Token | null;
  /** Nothing may be asked of the hub. */
  readonly offline: boolean;
}

const publicHub = 'https://huggingface.co';

/** Throws `config_invalid` naming the variable. An empty variable is one that is not set. */
export function hubSettings(env: NodeJS.ProcessEnv): HubSettings {
  const said = (name: string): string | null => (env[name]?.trim() ?? '') || null;
  const token = said('HF_TOKEN') ?? said('HUGGING_FACE_HUB_TOKEN');
  if (token !== null && !/^[\x21-\x7e]+$/.test(token)) throw refused('HF_TOKEN', 'a token has no spaces and no control characters');
  return { endpoint: endpointOf(said('HF_ENDPOINT') ?? publicHub), token: token === null ? null : new Token(token), offline: /^(1|true|yes|on)$/i.test(said('HF_HUB_OFFLINE') ?? '') };
}

/** Where to put a token, for those who have none, and for those whose token was not enough. */
export function tokenHint({ token }: HubSettings): string {
  return token === null
    ? 'If it is private or gated, put a token that may read it into HF_TOKEN.'
    : 'The token of HF_TOKEN was sent; use one whose account may read it.';
}

function endpointOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:')) throw refused('HF_ENDPOINT', 'it must be a URL like https://huggingface.co');
  if (url.username !== '' || url.password !== '') throw refused('HF_ENDPOINT', 'a URL with a password in it would be shown; put the token into HF_TOKEN');
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}

function refused(name: string, reason: string): LeaseholdError {
  return new LeaseholdError('config_invalid', { path: 'the environment', where: name, reason });
}
