/** Tables that fit the terminal: columns as wide as what is in them, the flexible ones cut or broken, and a list where even that does not fit. */
import type { Palette } from './colour.js';
import type { Output } from './output.js';
import { displayWidth, pad, plainLine, truncate, truncateMiddle, truncateStart, wrap } from './width.js';

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** May be cut, down to this many columns, when the table is too wide. */
  readonly shrinkTo?: number;
  /** What is left of a cell that is cut: its start (default), of a path its end, which says which it is, of a name both ends, or all, in several lines. */
  readonly keeps?: 'start' | 'end' | 'ends' | 'all';
}

const gap = '  ';
const cuts = { start: truncate, end: truncateStart, ends: truncateMiddle } as const;

/** How wide a table may be there. Nothing is cut for a file or a program. */
export function tableColumns({ isTerminal, columns }: Pick<Output, 'isTerminal' | 'columns'>): number {
  return isTerminal ? columns : Number.POSITIVE_INFINITY;
}

/**
 * Lines of a table, heads first; cells are made plain text of one line. None when there are no rows. `below`: lines that
 * belong to a row and stand under it.
 */
export function renderTable(given: readonly Column[], cells: readonly (readonly string[])[], columnsMax: number, palette: Palette, below: (row: number) => readonly string[] = () => []): string[] {
  if (cells.length === 0) return [];
  const plain = cells.map((row) => row.map(plainLine));
  const fits = (columns: readonly Column[], rows: readonly (readonly string[])[]) => excess(columns, widthsOf(columns, rows), columnsMax) <= 0;
  const kept = fits(given, plain) ? given.map((_, index) => index) : given.flatMap((_, index) => (plain.some((row) => (row[index] ?? '') !== '') ? [index] : []));
  const columns = kept.flatMap((index) => given[index] ?? []);
  const rows = plain.map((row) => kept.map((index) => row[index] ?? ''));
  const widths = fit(columns, widthsOf(columns, rows), columnsMax);
  if (widths === null) return rows.flatMap((row, index) => [...listed(columns, row, columnsMax, palette), ...below(index)]);
  const line = (row: readonly string[]) => columns.map(({ align }, index) => pad(row[index] ?? '', widths[index] ?? 0, align)).join(gap).trimEnd();
  return [palette.dim(line(columns.map(({ title }) => title))), ...rows.flatMap((row, index) => [...broken(columns, row, widths).map(line), ...below(index)])];
}

function widthsOf(columns: readonly Column[], rows: readonly (readonly string[])[]): readonly number[] {
  return columns.map(({ title }, index) => Math.max(displayWidth(title), ...rows.map((row) => displayWidth(row[index] ?? ''))));
}

function excess(columns: readonly Column[], widths: readonly number[], columnsMax: number): number {
  return widths.reduce((sum, width) => sum + width, 0) + gap.length * (columns.length - 1) - columnsMax;
}

/** One row as the lines it takes there: several only where a cell keeps all of itself. */
function broken(columns: readonly Column[], row: readonly string[], widths: readonly number[]): string[][] {
  const lines = columns.map(({ keeps }, index) => {
    const [cell, width] = [row[index] ?? '', widths[index] ?? 0];
    return keeps === 'all' ? wrap(cell, width) : [cuts[keeps ?? 'start'](cell, width)];
  });
  return Array.from({ length: Math.max(...lines.map(({ length }) => length)) }, (_, place) => lines.map((cell) => cell[place] ?? ''));
}

/** A row where no table fits: a line for each column that says something, those after the first below it. */
function listed(columns: readonly Column[], row: readonly string[], columnsMax: number, palette: Palette): string[] {
  const [head] = columns;
  const width = Math.max(displayWidth(head?.title ?? '') - 2, ...columns.slice(1).map(({ title }) => displayWidth(title)));
  const indent = 2 + width + gap.length;
  const others = columns.flatMap(({ title, keeps }, index) => {
    const cell = row[index] ?? '';
    return index === 0 || cell === '' || cell === '-' ? [] : [`  ${palette.dim(pad(title, width))}${gap}${keeps === 'end' ? truncateStart(cell, columnsMax - indent) : cell}`];
  });
  return [`${palette.dim(pad(head?.title ?? '', width + 2))}${gap}${row[0] ?? ''}`, ...others].flatMap((line) => wrap(line, columnsMax, indent));
}

/** Takes columns off the flexible ones, the widest first, until the table fits; null when none can give more. */
function fit(columns: readonly Column[], widths: readonly number[], columnsMax: number): readonly number[] | null {
  const fitted = [...widths];
  for (let left = excess(columns, widths, columnsMax); left > 0; left--) {
    let widest: number | null = null;
    for (const [index, column] of columns.entries()) {
      const width = fitted[index] ?? 0;
      if (column.shrinkTo !== undefined && width > column.shrinkTo && (widest === null || width > (fitted[widest] ?? 0))) widest = index;
    }
    if (widest === null) return null;
    fitted[widest] = (fitted[widest] ?? 0) - 1;
  }
  return fitted;
}
