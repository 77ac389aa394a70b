/** Tokens and vectors without an engine: pieces of text, and numbers that depend on the text alone. */
import type { ChatMessage } from '../../protocol/index.js';

export interface Input {
  readonly messages: readonly ChatMessage[] | null;
  readonly prompt: string | null;
}

/** Cuts a text into tokens of so many characters; characters outside the first plane stay whole. */
export function pieces(text: string, characters: number): string[] {
  const all = Array.from(text);
  const size = Math.max(1, Math.floor(characters));
  return Array.from({ length: Math.ceil(all.length / size) }, (_, index) => all.slice(index * size, (index + 1) * size).join(''));
}

/** What the model is asked, as one text: the whole conversation through a plain template, or the prompt. */
export function rendered(input: Input): string {
  return input.prompt ?? (input.messages ?? []).map(({ role, content }) => `${role}: ${content}\n`).join('');
}

/** What an echo answers: the last message, or the prompt. */
export function lastText(input: Input): string {
  return input.prompt ?? input.messages?.at(-1)?.content ?? '';
}

/** A token's id: 32 bits of FNV-1a of its text. */
export function tokenId(piece: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < piece.length; index++) hash = Math.imul(hash ^ piece.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}

/** A vector of length 1 that depends on the text alone. */
export function embedding(text: string, dimensions: number): number[] {
  let state = tokenId(text) || 1;
  const raw = Array.from({ length: dimensions }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 31 - 1;
  });
  const length = Math.hypot(...raw) || 1;
  return raw.map((value) => value / length);
}
