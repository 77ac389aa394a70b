/** Text by the columns it fills on a terminal: wide characters fill two, marks and colours none. */
import { stripVTControlCharacters } from 'node:util';

const marks = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
const wide = /^[\u1100-\u115F\u2E80-\u303E\u3041-\uA4CF\uA960-\uA97F\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6\u{1F300}-\u{1F64F}\u{1F680}-\u{1F6FF}\u{1F900}-\u{1F9FF}\u{20000}-\u{3FFFD}]$/u;

/** Columns of `text`, colours left out. */
export function displayWidth(text: string): number {
  let columns = 0;
  for (const character of stripVTControlCharacters(text)) columns += characterWidth(character);
  return columns;
}

function characterWidth(character: string): number {
  if (character < '\u0300') return character < ' ' ? 0 : 1;
  if (marks.test(character)) return 0;
  return wide.test(character) ? 2 : 1;
}

/** `text` in at most `columns`, the cut marked by `…`. Plain text only. */
export function truncate(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  if (columns < 1) return '';
  let kept = '';
  let used = 1;
  for (const character of text) {
    used += characterWidth(character);
    if (used > columns) break;
    kept += character;
  }
  return `${kept}…`;
}

/** The end of `text` in at most `columns`, the cut before it marked by `…`. Plain text only. */
export function truncateStart(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  if (columns < 1) return '';
  let kept = '';
  let used = 1;
  for (const character of Array.from(text).reverse()) {
    used += characterWidth(character);
    if (used > columns) break;
    kept = character + kept;
  }
  return `…${kept}`;
}

/** Both ends of `text` in at most `columns`, the cut between them marked by `…`: what names share is most often in the middle. Plain text only. */
export function truncateMiddle(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  if (columns < 1) return '';
  const tail = truncateStart(text, Math.floor((columns - 1) / 2) + 1).slice(1);
  return truncate(text, columns - displayWidth(tail)) + tail;
}

/** Spaces added until it fills `columns`; longer text stays as it is. */
export function pad(text: string, columns: number, align: 'left' | 'right' = 'left'): string {
  const spaces = ' '.repeat(Math.max(0, columns - displayWidth(text)));
  return align === 'left' ? text + spaces : spaces + text;
}

/**
 * Lines of at most `columns`, broken between words where that is possible, never at a no-break space; what follows the
 * first is indented by `hanging`. Line ends of the text stay. Colours are left whole and go on in the next line.
 */
export function wrap(text: string, columns: number, hanging = 0): string[] {
  const indent = Math.max(0, Math.min(hanging, columns - textColumnsMin));
  return text.split('\n').flatMap((line) => wrapLine(line, Math.max(1, columns), indent));
}

/** What follows is indented by less where that would leave less than this for its words. */
const textColumnsMin = 16;

function wrapLine(line: string, columns: number, indent: number): string[] {
  const lines: string[] = [];
  const begin = (): string => (lines.length === 0 ? '' : ' '.repeat(indent));
  let current = '';
  for (const word of line.split(/(?<=[ \t])(?=[^ \t])/)) {
    if (current.trim() !== '' && displayWidth(current + word.trimEnd()) > columns) {
      lines.push(current.trimEnd());
      current = begin();
    }
    current += word;
    for (let cut = cutAt(current, columns); cut < current.trimEnd().length; cut = cutAt(current, columns)) {
      lines.push(current.slice(0, cut));
      current = begin() + current.slice(cut);
    }
  }
  return [...lines, current.trimEnd()];
}

const colour = /\u001B\[[\d;]*m/y;

/** How much of `text` fits, in UTF-16 units; at least one character, so that every loop ends. A colour takes no room. */
function cutAt(text: string, columns: number): number {
  let used = 0;
  let length = 0;
  while (length < text.length) {
    colour.lastIndex = length;
    const [painted] = colour.exec(text) ?? [];
    const character = painted ?? String.fromCodePoint(text.codePointAt(length) ?? 0);
    used += painted === undefined ? characterWidth(character) : 0;
    if (used > columns && length > 0) break;
    length += character.length;
  }
  return length;
}

/** Text of a stranger (a model, a file name) without anything that could move the cursor, change the terminal, turn the order of what follows or hide in it. Line ends, all as `\n`, and tabs stay. */
export function withoutControls(text: string): string {
  return text.replace(/[\u2028\u2029]/g, '\n').replace(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200B\u200E\u200F\u202A-\u202E\u2060\u2066-\u2069\uFEFF]/g, '');
}

/** The same, in one line. */
export function plainLine(text: string): string {
  return withoutControls(text).replace(/[\n\t]+/g, ' ');
}
