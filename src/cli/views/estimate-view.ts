/** An estimate as people read it: each figure with its range, and how it was got. */
import type { Answer } from '../../models/estimate/ask.js';
import type { CardEstimate } from '../../models/estimate/estimate.js';
import type { Figure } from '../../models/estimate/figure.js';
import type { SimulatedEstimate } from '../../models/estimate/simulated.js';
import type { LearnedError } from '../../models/learned/learned-size.js';
import { beyondTraining } from '../commands/training.js';
import type { Palette } from '../terminal/colour.js';
import { formatBytes, formatCount } from '../terminal/size-format.js';
import { renderTable } from '../terminal/table.js';
import { plainLine, withoutControls } from '../terminal/width.js';

export interface EstimateStyle {
  /** How wide tables may be. */
  readonly columns: number;
  readonly palette: Palette;
}

/** What a lease takes beside the estimate: ADR 0001. */
const leased = (bytes: number): number => Math.ceil((bytes * 11) / 10);

export function renderEstimate({ estimate, engine, trainedTokens, learned }: Answer, { columns, palette }: EstimateStyle): readonly string[] {
  const { options, cards: [card] } = estimate;
  if (card === undefined) return [];
  const contexts = `${options.parallel === 1 ? 'a context' : `${String(options.parallel)} contexts`} of ${String(options.contextTokens)} tokens`;
  const perToken = estimate.kvBytesPerToken === null ? [] : [`${String(estimate.kvBytesPerToken)} B a token`];
  const title = [palette.bold(plainLine(estimate.model)), options.backend, contexts, ...perToken, estimate.source].join(' · ');
  const rows = figures(card, estimate.host).map(([name, figure]) => [name, sizeOf(figure), withoutControls(figure.how)]);
  const note = engine !== null && 'missing' in engine ? [palette.dim(`llama.cpp could not be asked: ${withoutControls(engine.reason)}`)] : [];
  const beyond = beyondTraining(options.contextTokens, trainedTokens);
  return [
    title,
    ...renderTable([{ title: options.ranks > 1 ? `each of ${String(options.ranks)} cards` : 'part' }, { title: 'bytes', align: 'right' }, { title: 'how', shrinkTo: 20, keeps: 'all' }], rows, columns, palette),
    `A lease of ${palette.bold(formatBytes(leased(card.loadPeak.bytes)))}${options.ranks > 1 ? ' on each card' : ''}: with the headroom of a tenth, and the process's own floor besides.`,
    ...learned.map((one) => learnedLine(one, options.contextTokens)),
    ...(beyond === null ? [] : [palette.yellow(beyond)]),
    ...note,
  ];
}

/** The word of a script of the simulated engine. */
export function renderSimulated(model: string, { contextTokens, parallel, weights, kv, compute, total, loadPeak }: SimulatedEstimate, { columns, palette }: EstimateStyle): readonly string[] {
  const contexts = `${parallel === 1 ? 'a context' : `${String(parallel)} contexts`} of ${String(contextTokens)} tokens`;
  const rows = Object.entries({ weights, contexts: kv, compute, total, 'load peak': loadPeak }).map(([name, figure]) => [name, sizeOf(figure), figure.how]);
  return [
    [palette.bold(plainLine(model)), 'simulated', contexts].join(' · '),
    ...renderTable([{ title: 'part' }, { title: 'bytes', align: 'right' }, { title: 'how', shrinkTo: 20, keeps: 'all' }], rows, columns, palette),
    `A lease of ${palette.bold(formatBytes(leased(loadPeak.bytes)))}: with the headroom of a tenth, and the process's own floor besides.`,
  ];
}

/** An estimate of the same parts was made for them then; a load now asks for what was measured. */
function learnedLine({ engine, card, contextTokens, measuredBytes, error, loads }: LearnedError, askedTokens: number): string {
  const setting = contextTokens === null ? '' : ` with contexts of ${String(contextTokens)} tokens`;
  return `Learned by ${formatCount(loads, 'load')} on ${plainCard(card)} (${engine}): ${formatBytes(measuredBytes)}${setting}, ${percent(error)} of what was estimated for it. A load there ${contextTokens === null || contextTokens === askedTokens ? '' : 'with such contexts '}asks for that.`;
}

function figures({ weights, kv, compute, projector, draft, total, loadPeak }: CardEstimate, host: Figure): readonly (readonly [string, Figure])[] {
  const short = { ...total, how: 'all of it, when loaded' };
  return [
    ['weights', weights], ['contexts', kv], ['compute', compute], ...(projector === null ? [] : [['projector', projector] as const]), ...(draft === null ? [] : [['draft', { ...draft, how: 'the draft model, all of it' }] as const]),
    ['total', short], ['load peak', loadPeak], ['host memory', host],
  ];
}

/** `4.5 GiB`, or `3.9 GiB to 4.5 GiB` where it is not known exactly. */
function sizeOf({ bytes, leastBytes }: Figure): string {
  const [least, most] = [formatBytes(leastBytes), formatBytes(bytes)];
  return least === most ? most : `${least} to ${most}`;
}

/** How wrong estimates were, the latest first, and all together. */
export function renderErrors(errors: readonly (LearnedError & { readonly name: string })[], { columns, palette }: EstimateStyle): readonly string[] {
  if (errors.length === 0) return ['Nothing has been measured yet: sizes are learned as models are loaded.'];
  const rows = errors.map(({ name, engine, card, contextTokens, estimatedBytes, measuredBytes, error, loads }) => [name, engine, plainCard(card), contextTokens === null ? '-' : String(contextTokens), formatBytes(estimatedBytes), formatBytes(measuredBytes), percent(error), String(loads)]);
  const absolute = errors.map(({ error }) => Math.abs(error)).sort((a, b) => a - b);
  const over = errors.filter(({ error }) => error > 0.1).length;
  return [
    ...renderTable([{ title: 'model', shrinkTo: 16, keeps: 'end' }, { title: 'engine' }, { title: 'card', shrinkTo: 12, keeps: 'end' }, { title: 'context', align: 'right' }, { title: 'estimated', align: 'right' }, { title: 'measured', align: 'right' }, { title: 'error', align: 'right' }, { title: 'loads', align: 'right' }], rows, columns, palette),
    `${formatCount(errors.length, 'size')} learned: half of the estimates were within ${percentOf(absolute[Math.floor(absolute.length / 2)] ?? 0)}, the worst ${percentOf(absolute.at(-1) ?? 0)} off; ${String(over)} beyond the headroom of a tenth.`,
  ];
}

/** A simulated card is known by its size: told as people read it. */
function plainCard(card: string): string {
  return withoutControls(card).replace(/\b(\d{4,15}) bytes\b/g, (_, bytes: string) => formatBytes(Number(bytes)));
}

function percent(error: number): string {
  return `${error >= 0 ? '+' : ''}${percentOf(error)}`;
}

function percentOf(error: number): string {
  return `${(error * 100).toFixed(1)} %`;
}
