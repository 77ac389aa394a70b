/** A configuration file as text becomes a plain value, and any value's place in the text can be found again. */
import type { Document, LineCounter, Node, Pair } from 'yaml';
import { LeaseholdError } from '../../protocol/index.js';
import { pointerText, type Pointer, type Source } from './fault.js';

type Yaml = typeof import('yaml');

/** Largest file taken for a configuration. */
export const configBytesMax = 1024 * 1024;
/** Aliases (`*name`) one file may use: generous for people, far below what a bomb needs. */
const aliasesMax = 100;

export interface ParsedDocument extends Source {
  /** Plain maps, lists, strings, numbers, booleans, null; an empty file is an empty map. */
  readonly value: unknown;
}

/**
 * Parses YAML 1.2 with the core schema: no tags of its own, string keys only,
 * duplicate keys refused, aliases bounded. Throws `config_invalid` with line and column.
 */
export async function parseDocument(path: string, text: string): Promise<ParsedDocument> {
  const yaml = await import('yaml');
  const lines = new yaml.LineCounter();
  const document = yaml.parseDocument(text, {
    lineCounter: lines, prettyErrors: false, schema: 'core', resolveKnownTags: false, strict: true, stringKeys: true, uniqueKeys: true, logLevel: 'error',
  });
  // A warning means that something was read otherwise than it was written (a tag nobody knows).
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem !== undefined) throw notYaml(path, lines, problem.pos[0], sentence(problem.code, problem.message));
  return {
    name: path,
    value: toValue(path, document),
    locate: (pointer, part) => locate(yaml, document, lines, pointer, part),
  };
}

function toValue(path: string, document: Document.Parsed): unknown {
  try {
    return (document.toJS({ maxAliasCount: aliasesMax }) as unknown) ?? {};
  } catch (error) {
    // The only thing it throws for: more aliases than allowed, or one that leads nowhere.
    const reason = error instanceof Error ? error.message : String(error);
    throw new LeaseholdError('config_invalid', { path, where: 'aliases', reason: `${reason.toLowerCase()} (at most ${aliasesMax})` }, { cause: error });
  }
}

function notYaml(path: string, lines: LineCounter, offset: number, reason: string): LeaseholdError {
  const { line, col } = lines.linePos(offset);
  return new LeaseholdError('config_invalid', { path, where: `line ${line}, column ${col}`, reason, line, column: col });
}

/** The parser's message without its full stop, ours where it is terse. */
function sentence(code: string, message: string): string {
  if (code === 'DUPLICATE_KEY') return 'this key is there twice; keep one';
  if (code === 'MULTIPLE_DOCS') return 'the file holds several documents; keep one';
  return message.replace(/\.$/, '').replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
}

function locate(yaml: Yaml, document: Document.Parsed, lines: LineCounter, pointer: Pointer, part: 'key' | 'value'): ReturnType<Source['locate']> {
  const offset = offsetOf(yaml, document, pointer, part);
  const { line, col } = lines.linePos(offset);
  const name = pointerText(pointer);
  return { where: `line ${line}, column ${col}${name === '' ? '' : ` (${name})`}`, line, column: col };
}

/** Where a value (or its key) begins; the nearest enclosing one when it is not in the text. */
function offsetOf(yaml: Yaml, document: Document.Parsed, pointer: Pointer, part: 'key' | 'value'): number {
  let node: unknown = document.contents;
  let offset = rangeStart(node) ?? 0;
  for (const [depth, step] of pointer.entries()) {
    const pair = child(yaml, document, node, step);
    if (pair === null) return offset;
    const last = depth === pointer.length - 1;
    const wanted = last && part === 'key' ? pair.key : pair.value;
    offset = rangeStart(wanted) ?? rangeStart(pair.key) ?? offset;
    node = pair.value;
  }
  return offset;
}

function child(yaml: Yaml, document: Document.Parsed, node: unknown, step: string | number): { key: unknown; value: unknown } | null {
  const resolved = yaml.isAlias(node) ? node.resolve(document) : node;
  if (yaml.isSeq(resolved) && typeof step === 'number') {
    const item = resolved.items[step];
    return item === undefined ? null : { key: item, value: item };
  }
  if (!yaml.isMap(resolved)) return null;
  return resolved.items.find((pair: Pair) => (yaml.isScalar(pair.key) ? String(pair.key.value) : pair.key) === String(step)) ?? null;
}

function rangeStart(node: unknown): number | null {
  return (node as Node | null)?.range?.[0] ?? null;
}
