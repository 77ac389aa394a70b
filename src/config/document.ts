/** A configuration file as text becomes a plain value, and any value's place in the text can be found again. */
import type { LineCounter } from 'yaml';
import { LeaseholdError } from '../../protocol/index.js';
import { pointerText, type Pointer, type Source } from './fault.js';
import { placesOf, type Places } from './places.js';

/** Largest file taken for a configuration. */
export const configBytesMax = 1024 * 1024;

export interface ParsedDocument extends Source {
  /** Plain maps, lists, strings, numbers, booleans, null; an empty file is an empty map. */
  readonly value: unknown;
}

/**
 * Parses YAML 1.2 with the core schema: no tags of its own, string keys only,
 * duplicate keys refused, aliases bounded. Throws `config_invalid` with line and column. `help` says where the form of
 * such a file is told.
 */
export async function parseDocument(path: string, text: string, help: string): Promise<ParsedDocument> {
  const yaml = await import('yaml');
  const lines = new yaml.LineCounter();
  const document = yaml.parseDocument(text, {
    lineCounter: lines, prettyErrors: false, schema: 'core', resolveKnownTags: false, strict: true, stringKeys: true, logLevel: 'error',
    // Its own check compares every key with every other of its map; `placesOf` finds those that are there twice.
    uniqueKeys: false,
  });
  // A warning means that something was read otherwise than it was written (a tag nobody knows).
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem !== undefined) throw notYaml(path, lines, problem.pos[0], sentence(problem.code, problem.message), help);
  const places = placesOf(yaml, document);
  if (places.fault !== null) throw notYaml(path, lines, places.fault.offset, places.fault.reason, help);
  return {
    name: path,
    help: () => help,
    // What aliases may cost has been counted.
    value: (document.toJS({ maxAliasCount: -1 }) as unknown) ?? {},
    locate: (pointer, part) => locate(places, lines, pointer, part),
  };
}

function notYaml(path: string, lines: LineCounter, offset: number, reason: string, help: string): LeaseholdError {
  const { line, col } = lines.linePos(offset);
  return new LeaseholdError('config_invalid', { path, where: `line ${line}, column ${col}`, reason, line, column: col }, { help: `That is no YAML: mind the indentation, colons and quotes there. ${help}` });
}

/** The parser's message without its full stop, ours where it is terse. */
function sentence(code: string, message: string): string {
  if (code === 'MULTIPLE_DOCS') return 'the file holds several documents; keep one';
  return message.replace(/\.$/, '').replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
}

function locate(places: Places, lines: LineCounter, pointer: Pointer, part: 'key' | 'value'): ReturnType<Source['locate']> {
  const { line, col } = lines.linePos(places.offsetOf(pointer, part));
  const name = pointerText(pointer);
  return { where: `line ${line}, column ${col}${name === '' ? '' : ` (${name})`}`, line, column: col };
}
