/** What tells two calls of one conversation from two that have nothing in common, without a look at their tokens. */
import { createHash } from 'node:crypto';
import type { ChatMessage } from '../../protocol/index.js';

/** Bare prompts that are equal so far may well go on so. */
const promptCharacters = 256;

/** A conversation is known by what it begins with, through its first question; a bare prompt by its first characters. Null: the call has neither. */
export function topicOf(request: { readonly type: string; readonly messages?: readonly ChatMessage[] | null; readonly prompt?: string | null }): string | null {
  const { type, messages, prompt } = request;
  if (type !== 'generate') return null;
  if (messages === null || messages === undefined) return hash((prompt ?? '').slice(0, promptCharacters));
  const question = messages.findIndex(({ role }) => role === 'user');
  return hash(JSON.stringify(messages.slice(0, question + 1)));
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 16);
}
