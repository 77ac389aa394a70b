/** An explain record as a person reads it: the sentence, the numbers, who was considered and why they were passed over. */
import type { ExplainRecord, ExplainedVictim } from '../../orchestrator/index.js';
import type { Palette } from '../terminal/colour.js';
import { formatBytes, formatMs } from '../terminal/size-format.js';
import { renderTable } from '../terminal/table.js';
import { pad, wrap } from '../terminal/width.js';
import { shortDevice, shortGeneration, type Names } from './names.js';

export interface ExplainViewOptions {
  readonly names: Names;
  readonly columns: number;
  /** How wide tables may be. */
  readonly tableColumns: number;
  readonly palette: Palette;
  /** The broker's clock now, to say how long ago it was; null when it is not known. */
  readonly nowUs: number | null;
  /** Keys of models that were chosen for the same request before this record. */
  readonly chosenBefore?: readonly string[];
}

const good: readonly string[] = ['granted', 'placed', 'evicted'];
const bad: readonly string[] = ['denied', 'expired', 'quarantined', 'overshoot', 'escalated', 'thrashing'];

export function renderExplain(record: ExplainRecord, options: ExplainViewOptions): string[] {
  const { names, columns, palette, nowUs } = options;
  const paint = good.includes(record.verdict) ? palette.green : bad.includes(record.verdict) ? palette.red : palette.yellow;
  const facts = [
    record.model === null ? null : names.model(record.model),
    record.device === null ? null : shortDevice(record.device),
    record.class,
    record.waitedMs > 0 ? `waited ${formatMs(record.waitedMs)}` : null,
    nowUs === null ? null : `${formatMs(Math.max(0, nowUs - record.atUs) / 1000)} ago`,
    record.id,
  ].filter((fact) => fact !== null);
  const sentence = wrap(names.inText(record.text), columns - 2).map((line) => `  ${line}`);
  const unverified = record.unverified ? [palette.yellow('  Unverified: it rests on the ledger alone, no probe answered.')] : [];
  return [
    ...headline(record.verdict.toUpperCase(), facts.join(' · '), columns, (verdict) => palette.bold(paint(verdict)), palette.dim),
    ...sentence,
    ...unverified,
    ...section(numbers(record, options)),
    ...section(victims(record.victims, options)),
  ];
}

function headline(verdict: string, facts: string, columns: number, paint: (text: string) => string, dim: (text: string) => string): string[] {
  const indent = verdict.length + 2;
  return wrap(facts, columns - indent).map((line, index) => (index === 0 ? `${paint(verdict)}  ${dim(line)}` : ' '.repeat(indent) + dim(line)));
}

function section(lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : ['', ...lines];
}

const evictableText = 'of models that may be put away, and are not leaving already';

/** The sum as it was made: what was needed, what the card had, what that left. */
function numbers({ numbers: figures }: ExplainRecord, { names, columns, palette, chosenBefore = [] }: ExplainViewOptions): string[] {
  if (figures === null) return [];
  // On the CPU nothing is leased: no sum was made.
  if (figures.totalBytes === 0) return [`  ${palette.dim('no sum was made: nothing is leased on a card without memory of its own')}`];
  const sample = figures.sampledUsedBytes === null ? '' : `, read ${formatMs(figures.sampleAgeMs)} before`;
  const rows: readonly (readonly [label: string, bytes: number | null, note: string])[] = [
    ['asked for', figures.requestedBytes, 'sum of parts'],
    ['needed', figures.needBytes, neededNote(figures)],
    ['card', figures.totalBytes, figures.truth === 'simulated' ? 'a simulated one' : figures.truth === 'ledger' ? 'by the ledger alone' : `read by ${figures.truth}`],
    ['reserve', figures.reserveBytes, 'kept free'],
    ['charged', figures.chargedBytes, 'leases, floors, residue, returning'],
    ['held', figures.holdBytes, 'for others who wait'],
    ['foreign', figures.foreignBytes, 'of other programs'],
    ['used', figures.sampledUsedBytes, `as the card says${sample}`],
    ['available', figures.availableBytes, availableNote(figures)],
    ['evictable', figures.evictableBytes, chosenBefore.length === 0 ? evictableText : `${evictableText}; for this one before: ${chosenBefore.map((key) => names.model(key)).join(', ')}`],
  ];
  const sizes = rows.map(([, bytes]) => formatBytes(bytes));
  const width = Math.max(...sizes.map((size) => size.length));
  const indent = 2 + 9 + 2 + width + 2;
  return rows.flatMap(([label, , note], index) => wrap(note, columns - indent).map((line, place) =>
    (place === 0 ? `  ${pad(label, 9)}  ${pad(sizes[index] ?? '', width, 'right')}  ` : ' '.repeat(indent)) + palette.dim(line)));
}

/** A new load needs all that it asks for and a tenth more; one that is there already only what it lacks. */
function neededNote({ requestedBytes, needBytes, floorBytes }: NonNullable<ExplainRecord['numbers']>): string {
  const ownBytes = needBytes - floorBytes;
  const what = ownBytes < requestedBytes ? `${formatBytes(ownBytes)} more than it holds: it is loaded, and grows` : '1.1 times';
  return floorBytes > 0 ? `${what}, and ${formatBytes(floorBytes)} for the process` : what;
}

/** Enough or not; and where the card's own reading leaves less than the sums above would, that this is why. */
function availableNote({ totalBytes, reserveBytes, chargedBytes, holdBytes, availableBytes, needBytes }: NonNullable<ExplainRecord['numbers']>): string {
  const verdict = availableBytes >= needBytes ? 'enough' : `${formatBytes(needBytes - availableBytes)} short`;
  const byLedgerBytes = totalBytes - reserveBytes - chargedBytes - holdBytes;
  return availableBytes < byLedgerBytes ? `${verdict}; ${formatBytes(byLedgerBytes)} by the ledger, less by what the card reads used` : verdict;
}

const actions: Readonly<Record<ExplainedVictim['action'], string>> = {
  trim: 'give back its copy', partial: 'free a part', park: 'park', unload: 'unload', end_process: 'end the process', wait_drain: 'wait for its calls',
};

const reasons: Readonly<Record<string, string>> = {
  pinned: 'it is pinned',
  loading: 'it is loading',
  in_use: 'it is in use',
  minimum_residency: 'it has only just been loaded',
  damped: 'its card thrashes, and calls queue for what was loaded a short while ago',
  requester: 'it is the one that asks',
  already_leaving: 'it is leaving already',
  not_answering: 'it did not give way when asked',
  spared: 'it has been used since the model that asks first failed to load',
  insufficient: 'all that may go is too little',
  dearer: 'others cost less',
};

function victims(considered: readonly ExplainedVictim[], { names, tableColumns, palette }: ExplainViewOptions): string[] {
  const rows = considered.map((victim) => [
    victim.model === null ? `process ${shortGeneration(victim.generation)}` : names.model(victim.model),
    formatBytes(victim.freesBytes),
    formatMs(victim.costMs),
    victim.passedOver === null ? `chosen: ${actions[victim.action]}` : `passed over: ${reasons[victim.passedOver] ?? victim.passedOver}`,
  ]);
  const heads = [{ title: 'CONSIDERED', shrinkTo: 12 }, { title: 'FREES', align: 'right' }, { title: 'COST', align: 'right' }, { title: 'VERDICT', shrinkTo: 12, keeps: 'all' }] as const;
  return renderTable(heads, rows, tableColumns - 2, palette).map((line) => `  ${line}`);
}
