/** A configuration file as text becomes a plain value, and any value's place in the text can be found again. */
import type { LineCounter } from 'yaml';
import { pointerText, type Fault, type Pointer, type Source } from './fault.js';
import { nestingMax, tooDeepLine } from './nesting.js';
import { placesOf, type Places } from './places.js';

/** Largest file taken for a configuration. */
export const configBytesMax = 1024 * 1024;

export interface ParsedDocument extends Source {
  /** Plain maps, lists, strings, numbers, booleans, null; an empty file is an empty map. Null where the faults leave nothing to be read. */
  readonly value: unknown;
  /** What no such file has, wherever it stands: what is no YAML, a key twice in a map, an alias of nothing. */
  readonly faults: readonly Fault[];
}

/**
 * Parses YAML 1.2 with the core schema: no tags of its own, string keys only,
 * duplicate keys refused, aliases bounded. What is none of these is among the faults,
 * each place of it. `help` says where the form of such a file is told.
 */
export async function parseDocument(path: string, text: string, help: string): Promise<ParsedDocument> {
  const yaml = await import('yaml');
  const deepLine = tooDeepLine(yaml, text);
  if (deepLine !== null) {
    const at = { where: `line ${String(deepLine)}`, line: deepLine, column: 1 };
    return { name: path, locate: () => at, help: () => help, faults: [{ pointer: [], part: 'value', reason: `it is nested more than ${String(nestingMax)} deep`, at }], value: null };
  }
  const lines = new yaml.LineCounter();
  const document = yaml.parseDocument(text, {
    lineCounter: lines, prettyErrors: false, schema: 'core', resolveKnownTags: false, strict: true, stringKeys: true, logLevel: 'error',
    // Its own check compares every key with every other of its map; `placesOf` finds those that are there twice.
    uniqueKeys: false,
  });
  const at = (offset: number, reason: string): Fault => {
    const { line, col } = lines.linePos(offset);
    return { pointer: [], part: 'value', reason, at: { where: `line ${line}, column ${col}`, line, column: col } };
  };
  // A warning means that something was read otherwise than it was written (a tag nobody knows).
  const problems = [...document.errors, ...document.warnings].map(({ pos, code, message }) => at(pos[0], sentence(code, message)));
  const places = placesOf(yaml, document);
  const faults = places.faults.map(({ offset, reason, firstOffset }) => at(offset, firstOffset === undefined ? reason : `${reason}, first in line ${lines.linePos(firstOffset).line}; keep one`));
  const source = { name: path, locate: (pointer: Pointer, part: 'key' | 'value') => locate(places, lines, pointer, part) };
  if (problems.length > 0) return { ...source, help: () => `That is no YAML: mind the indentation, colons and quotes there. ${help}`, faults: oncePerLine(problems), value: null };
  // What aliases may cost has been counted.
  return { ...source, help: () => help, faults, value: places.isTooMuch ? null : (document.toJS({ maxAliasCount: -1 }) as unknown) ?? {} };
}

/** What is wrong in a line makes the parser stumble over the rest of it. */
function oncePerLine(faults: readonly Fault[]): readonly Fault[] {
  const seen = new Set<number | null | undefined>();
  return faults.filter(({ at }) => !seen.has(at?.line) && seen.add(at?.line));
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
