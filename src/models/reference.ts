/** What a person writes to name a model, taken apart. Says nothing of whether it exists. */
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';

/** A repository on a hub: `owner/name[@revision][:file-or-quant]`. */
export interface HubReference {
  readonly kind: 'hub';
  readonly repository: string;
  /** Null: the repository's main branch. */
  readonly revision: string | null;
  /** A GGUF file of it, or a quantisation like Q4_K_M; null: what the repository is made for. */
  readonly selection: string | null;
}

export type ModelReference =
  | HubReference
  /** A profile by its id: one that was generated (`hf-` and 64 hex digits), or one of the curated. */
  | { readonly kind: 'generated' | 'curated'; readonly id: string }
  /** Absolute. */
  | { readonly kind: 'folder' | 'gguf'; readonly path: string };

/** What `parseReference` must know of the world around. */
export interface ReferenceSurroundings {
  readonly cwd: string;
  readonly curatedIds: ReadonlySet<string>;
}

/** The branch that is meant where none is named. */
export const defaultRevision = 'main';

const namePart = '[A-Za-z0-9][A-Za-z0-9._-]*';
const hubShape = new RegExp(`^(${namePart}/${namePart})(?:@([A-Za-z0-9][A-Za-z0-9._/-]*))?(?::(.+))?$`);
/** What people paste from a browser, or from a command of another program. */
const hubPrefix = /^(?:https?:\/\/)?(?:hf\.co|huggingface\.co)\//;
const selectionShape = /^[A-Za-z0-9][A-Za-z0-9._/ -]*$/;
const generatedId = /^hf-[0-9a-f]{64}$/;
const referenceCharactersMax = 1_024;

/** Throws `reference_invalid`. `./x`, `../x`, `~/x` and `/x` are paths, whatever else they look like; `a/b` is a repository even where a folder is called so. */
export function parseReference(text: string, { cwd, curatedIds }: ReferenceSurroundings): ModelReference {
  if (text.length > referenceCharactersMax) throw invalid(`${text.slice(0, 40)}…`, `it is longer than ${String(referenceCharactersMax)} characters`);
  if (/^(\.{1,2}|~)([\\/]|$)/.test(text) || isAbsolute(text)) return localReference(text, cwd);
  if (generatedId.test(text)) return { kind: 'generated', id: text };
  if (curatedIds.has(text)) return { kind: 'curated', id: text };
  return parseHubReference(text);
}

/** Throws `reference_invalid` for what is no `owner/name[@revision][:file-or-quant]`. */
export function parseHubReference(text: string): HubReference {
  const [, repository, revision, selection] = hubShape.exec(text.replace(hubPrefix, '')) ?? [];
  if (repository === undefined) throw invalid(text, 'it is not written as owner/name');
  if (repository.split('/').some(isUnsafePart)) throw invalid(text, 'a name is never made of dots, or with two in a row');
  if (revision?.split('/').some(isUnsafePart) === true) throw invalid(text, 'the revision climbs out of its place');
  if (selection !== undefined && (!selectionShape.test(selection) || selection.split('/').some(isUnsafePart))) {
    throw invalid(text, 'after the colon comes a GGUF file of the repository, or a quantisation like Q4_K_M');
  }
  // Ollama's word for "no tag".
  return { kind: 'hub', repository, revision: revision ?? null, selection: selection === undefined || selection === 'latest' ? null : selection };
}

/** The reference as it is written at its shortest: what records of it are kept under. */
export function referenceText({ repository, revision, selection }: HubReference): string {
  return repository + (revision === null || revision === defaultRevision ? '' : `@${revision}`) + (selection === null ? '' : `:${selection}`);
}

/** True for a revision that can never mean another commit. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

function localReference(text: string, cwd: string): ModelReference {
  if (text.includes('\0')) throw invalid(text.replaceAll('\0', '\\0'), 'a path holds no NUL');
  const path = text === '~' || /^~[\\/]/.test(text) ? join(homedir(), text.slice(1)) : resolve(cwd, text);
  return { kind: /\.gguf$/i.test(path) ? 'gguf' : 'folder', path };
}

function isUnsafePart(part: string): boolean {
  return part === '' || part.includes('..') || /^\.*$/.test(part);
}

function invalid(reference: string, reason: string): LeaseholdError {
  return new LeaseholdError('reference_invalid', { reference: JSON.stringify(reference), reason });
}
