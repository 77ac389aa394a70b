/** The end of the demo: a table by model, what the card saw, and the promises. */
import type { Palette } from '../terminal/colour.js';
import { formatBytes, formatMs } from '../terminal/size-format.js';
import { renderTable, type Column } from '../terminal/table.js';
import { wrap } from '../terminal/width.js';
import type { Pledge, DemoResult } from './result.js';

export interface ModelSummary {
  readonly model: string;
  readonly requests: number;
  readonly answered: number;
  readonly right: number;
  readonly tokens: number;
  readonly grants: number;
  readonly evictions: number;
  readonly handOffMedianMs: number | null;
  readonly handOffLongestMs: number | null;
}

export interface Summary {
  readonly models: readonly ModelSummary[];
  readonly result: DemoResult;
  readonly pledges: readonly Pledge[];
  readonly tookMs: number;
}

const heads: readonly Column[] = [
  { title: 'MODEL', shrinkTo: 8 },
  ...['ASKED', 'ANSWERED', 'RIGHT', 'TOKENS', 'GRANTS', 'EVICTED', 'HAND-OFF', 'LONGEST'].map((title): Column => ({ title, align: 'right' })),
];

export function renderSummary({ models, result, pledges, tookMs }: Summary, columns: number, palette: Palette): string[] {
  const rows = models.map((model) => [
    model.model, ...[model.requests, model.answered, model.right, model.tokens, model.grants, model.evictions].map(String),
    formatMs(model.handOffMedianMs), formatMs(model.handOffLongestMs),
  ]);
  const sum = (pick: (model: ModelSummary) => number) => String(models.reduce((total, model) => total + pick(model), 0));
  const longest = models.map(({ handOffLongestMs }) => handOffLongestMs).filter((ms) => ms !== null);
  const total = [
    'all', String(result.requests), String(result.answered), String(result.answersRight), sum(({ tokens }) => tokens), String(result.grants),
    String(result.evictions), '', formatMs(longest.length === 0 ? null : Math.max(...longest)),
  ];
  const facts = (
    `The card has ${formatBytes(result.deviceBytes)}. At its fullest ${formatBytes(result.peakChargedBytes)} were charged and held, and ${formatBytes(result.peakUsedBytes)} were really used;`
    + ` ${result.overcommittedBytes === 0 ? 'nothing' : formatBytes(result.overcommittedBytes)} was over-committed, ${result.oomRefusals} allocations were refused,`
    + ` ${result.denied} requests were denied. It took ${formatMs(tookMs)}.`
  ).replace(/(?<=\d) (?=[KMG]?i?B|m?s\b)/g, '\u00A0');
  return [
    ...renderTable(heads, [...rows, total], columns, palette),
    '',
    ...wrap(facts, columns),
    '',
    ...pledges.map(({ text, kept }) => `${kept ? palette.green('✓') : palette.red('✗')} ${kept ? text : palette.red(`broken: ${text}`)}`),
  ];
}
