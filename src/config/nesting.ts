/** How deep a YAML text is nested, told without a parser: one that descends with it ends with the stack, and its process too. */
import type * as Yaml from 'yaml';

/** Deeper than anything that a configuration has a use for. */
export const nestingMax = 64;

/** The line, from 1, in which the text goes deeper than `nestingMax`; null where none does. */
export function tooDeepLine({ Lexer }: typeof Yaml, text: string): number | null {
  let line = 1;
  let column = 0;
  let flow = 0;
  /** Of one line: `- - -` nests as lines do. */
  let indicators = 0;
  let isBegun = false;
  const indents: number[] = [];
  for (const lexeme of new Lexer().lex(text)) {
    // A mark of the lexer's own, of no width.
    if (/^[\u0002\u0018\u001f]$/.test(lexeme)) continue;
    if (lexeme === '{' || lexeme === '[') flow += 1;
    else if (lexeme === '}' || lexeme === ']') flow = Math.max(0, flow - 1);
    else if (flow === 0 && (lexeme === '-' || lexeme === '?')) indicators += 1;
    if (!isBegun && flow === 0 && /^\S/.test(lexeme)) {
      isBegun = true;
      while ((indents.at(-1) ?? -1) >= column) indents.pop();
      indents.push(column);
    }
    if (flow + Math.max(0, indicators - 1) + indents.length > nestingMax) return line;
    const ends = lexeme.split('\n').length - 1;
    line += ends;
    column = ends > 0 ? 0 : column + lexeme.length;
    if (ends > 0) {
      isBegun = false;
      indicators = 0;
    }
  }
  return null;
}
