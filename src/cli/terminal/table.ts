/** Tables that fit the terminal: columns as wide as what is in them, the flexible one cut when there is no room. */
import type { Palette } from './colour.js';
import type { Output } from './output.js';
import { displayWidth, pad, plainLine, truncate, truncateStart } from './width.js';

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** May be cut, down to this many columns, when the table is too wide. */
  readonly shrinkTo?: number;
  /** What is left of a cell that is cut; of a path its end says which it is. Default: start. */
  readonly keeps?: 'start' | 'end';
}

const gap = '  ';

/** How wide a table may be there. Nothing is cut for a file or a program. */
export function tableColumns({ isTerminal, columns }: Pick<Output, 'isTerminal' | 'columns'>): number {
  return isTerminal ? columns : Number.POSITIVE_INFINITY;
}

/** Lines of a table, heads first; cells are made plain text of one line. None when there are no rows. */
export function renderTable(columns: readonly Column[], given: readonly (readonly string[])[], columnsMax: number, palette: Palette): string[] {
  if (given.length === 0) return [];
  const rows = given.map((cells) => cells.map(plainLine));
  const widths = fit(columns, columns.map(({ title }, index) => Math.max(displayWidth(title), ...rows.map((row) => displayWidth(row[index] ?? '')))), columnsMax);
  const line = (cells: readonly string[]) =>
    columns.map(({ align, keeps }, index) => pad((keeps === 'end' ? truncateStart : truncate)(cells[index] ?? '', widths[index] ?? 0), widths[index] ?? 0, align)).join(gap).trimEnd();
  return [palette.dim(line(columns.map(({ title }) => title))), ...rows.map(line)];
}

/** Takes columns off the flexible ones, the widest first, until the table fits or none can give more. */
function fit(columns: readonly Column[], widths: readonly number[], columnsMax: number): number[] {
  const fitted = [...widths];
  let excess = fitted.reduce((sum, width) => sum + width, 0) + gap.length * (columns.length - 1) - columnsMax;
  while (excess > 0) {
    let widest: number | null = null;
    for (const [index, column] of columns.entries()) {
      const width = fitted[index] ?? 0;
      if (column.shrinkTo !== undefined && width > column.shrinkTo && (widest === null || width > (fitted[widest] ?? 0))) widest = index;
    }
    if (widest === null) break;
    fitted[widest] = (fitted[widest] ?? 0) - 1;
    excess--;
  }
  return fitted;
}
