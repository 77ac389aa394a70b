/** A card as one bar: every stretch as wide as its share of the bytes, its name inside where that fits. */
import type { Palette, Tone } from './colour.js';
import { displayWidth, pad, truncate } from './width.js';

export interface Stretch {
  readonly label: string;
  readonly bytes: number;
  readonly tone: Tone;
  /** Which model, for its colour; 0 elsewhere. */
  readonly index: number;
}

/** What fills a stretch where there is no colour to tell it by. */
const fills: Readonly<Record<Tone, string>> = {
  model: ' ', floor: '=', hold: '~', residue: '!', returning: '<', foreign: 'x', free: '·', reserve: '#',
};

/** Shorter names than this say nothing. */
const labelColumnsMin = 3;

/**
 * Cells for each number, together `cells`, by largest remainder; whatever is above 0 gets at least `cellsMin` while
 * there are enough. All zero: all zero.
 */
export function shareCells(bytes: readonly number[], cells: number, cellsMin = 1): number[] {
  const total = bytes.reduce((sum, part) => sum + part, 0);
  if (total <= 0) return bytes.map(() => 0);
  const exact = bytes.map((part) => (part / total) * cells);
  const given = exact.map((share, index) => Math.max(Math.floor(share), (bytes[index] ?? 0) > 0 ? cellsMin : 0));
  for (let left = cells - sum(given); left !== 0; left = cells - sum(given)) {
    const step = Math.sign(left);
    const index = furthest(exact, given, step, cellsMin);
    if (index === null) break;
    given[index] = (given[index] ?? 0) + step;
  }
  return given;
}

/** Who is owed most (step 1), or has most too much and can spare one (step -1). */
function furthest(exact: readonly number[], given: readonly number[], step: number, cellsMin: number): number | null {
  let best: number | null = null;
  let bestOwed = Number.NEGATIVE_INFINITY;
  for (const [index, cells] of given.entries()) {
    const owed = ((exact[index] ?? 0) - cells) * step;
    const possible = step > 0 ? (exact[index] ?? 0) > 0 : cells > cellsMin;
    if (possible && owed > bestOwed) [best, bestOwed] = [index, owed];
  }
  return best;
}

/** The bar, exactly `columns` wide. Stretches of zero bytes are left out. */
export function renderBar(stretches: readonly Stretch[], columns: number, palette: Palette): string {
  const shown = stretches.filter(({ bytes }) => bytes > 0);
  return palette.enabled ? colouredBar(shown, columns, palette) : plainBar(shown, columns);
}

function colouredBar(stretches: readonly Stretch[], columns: number, palette: Palette): string {
  const cells = shareCells(stretches.map(({ bytes }) => bytes), columns);
  return stretches.map((stretch, index) => palette.on(stretch.tone, stretch.index)(inside(stretch, cells[index] ?? 0, ' '))).join('');
}

/** Without colours a line stands between the stretches; it belongs to the stretch on its left. */
function plainBar(stretches: readonly Stretch[], columns: number): string {
  const room = Math.max(stretches.length, columns - 1);
  // A mark and its line, so that the smallest stretch is seen.
  const cells = shareCells(stretches.map(({ bytes }) => bytes), room, room >= 2 * stretches.length ? 2 : 1);
  return `│${stretches.map((stretch, index) => `${inside(stretch, (cells[index] ?? 1) - 1, fills[stretch.tone])}│`).join('')}`;
}

function inside({ label, tone }: Stretch, cells: number, fill: string): string {
  const room = cells - 2;
  if (tone === 'free' || room < labelColumnsMin || (displayWidth(label) > room && room < 6)) return (tone === 'free' ? '·' : fill).repeat(Math.max(0, cells));
  const name = truncate(label, room);
  return fill === ' ' ? pad(` ${name} `, cells) : ` ${name} ` + fill.repeat(cells - displayWidth(name) - 2);
}

/** The mark of a stretch in a legend: its colour, or what fills it. */
export function swatch({ tone, index }: Pick<Stretch, 'tone' | 'index'>, palette: Palette): string {
  if (tone === 'free') return palette.dim('·');
  return palette.enabled ? palette.as(tone, index)('■') : tone === 'model' ? '□' : fills[tone];
}

/** `45 %` of the way as a bar of eighths of a cell. */
export function renderProgress(fraction: number, columns: number): string {
  const eighths = Math.round(Math.min(1, Math.max(0, fraction)) * columns * 8);
  const full = Math.floor(eighths / 8);
  const part = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8] ?? '';
  return pad('█'.repeat(full) + part, columns).replaceAll(' ', '░');
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
