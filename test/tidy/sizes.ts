/** How long files and functions are. */
import ts from 'typescript';
import { eachNode, parse, read, sources } from './tree.js';

/** A file longer than this fails. */
export const fileLinesMax = 500;
/** A function longer than this fails, unless the allowance names it. */
export const functionLinesMax = 70;
/** What the median file should stay under; printed, not enforced. */
export const medianLinesAim = 120;

/** Lines of each source. */
export const fileLines: ReadonlyMap<string, number> = new Map(sources.map((path) => [path, read(path).trimEnd().split('\n').length]));

/** The middle of the sources' lengths. */
export function medianLines(): number {
  const sorted = [...fileLines.values()].sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** Functions over the limit, as `path#name` and their lines. */
export function longFunctions(): Map<string, number> {
  const found = new Map<string, number>();
  for (const path of sources) {
    for (const [name, lines] of path.endsWith('.py') ? pythonFunctions(read(path)) : scriptFunctions(path)) {
      if (lines > functionLinesMax) found.set(`${path}#${name}`, lines);
    }
  }
  return found;
}

function scriptFunctions(path: string): [string, number][] {
  const file = parse(path);
  const found: [string, number][] = [];
  eachNode(file, (node) => {
    if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined || isTestBody(node)) return;
    const first = file.getLineAndCharacterOfPosition(node.getStart(file)).line;
    const last = file.getLineAndCharacterOfPosition(node.getEnd()).line;
    found.push([nameOf(node, file), last - first + 1]);
  });
  return found;
}

/** A test's body lists cases; its length is not complexity. */
function isTestBody(node: ts.Node): boolean {
  return ts.isArrowFunction(node) && ts.isCallExpression(node.parent) && /\btest$/.test(node.parent.expression.getText());
}

function nameOf(node: ts.SignatureDeclaration, file: ts.SourceFile): string {
  if (node.name !== undefined) return node.name.getText(file);
  const { parent } = node;
  if ((ts.isVariableDeclaration(parent) || ts.isPropertyAssignment(parent)) && ts.isIdentifier(parent.name)) return parent.name.text;
  return ts.isConstructorDeclaration(node) ? 'constructor' : `line ${file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1}`;
}

/** By indentation: a function ends before the next line that is not deeper than its `def`. */
function pythonFunctions(text: string): [string, number][] {
  const lines = text.split('\n');
  return lines.flatMap((line, start): [string, number][] => {
    const [, indent = '', name] = /^(\s*)(?:async )?def (\w+)/.exec(line) ?? [];
    if (name === undefined) return [];
    const deeper = (other: string): boolean => other.trim() === '' || other.startsWith(`${indent} `) || /^\s*\)/.test(other);
    const length = lines.slice(start + 1).findIndex((other) => !deeper(other));
    const body = lines.slice(start, length < 0 ? undefined : start + 1 + length).join('\n').trimEnd();
    return [[name, body.split('\n').length]];
  });
}
