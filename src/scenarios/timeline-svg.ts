/** Who held each card when, as one SVG: bytes charged over time, a colour a model, what struck marked. */
import type { CardMoment, CardTimeline, Mark } from './recorder.js';

const width = 1_200;
const left = 84;
const right = 24;
const laneHeight = 170;
const laneGap = 46;
const top = 64;
const legendColumn = 180;
const legendRow = 18;
const marksMax = 60;

/** Told apart by people who see colours otherwise, too; used over again when there are more models. */
const colours = ['#4477aa', '#ee6677', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#e69f00', '#009e73', '#56b4e9', '#d55e00', '#8c6bb1', '#b5bd61'];
const otherColour = '#777777';
const foreignColour = '#c8c8c8';

/** A self-contained document; names are escaped, so that any text may be one. */
export function timelineSvg(title: string, cards: readonly CardTimeline[], marks: readonly Mark[], endMs: number): string {
  const models = [...new Set(cards.flatMap(({ moments }) => moments.flatMap((moment) => [...moment.models.keys()])))].sort();
  const colourOf = new Map(models.map((model, index) => [model, colours[index % colours.length] ?? otherColour]));
  const legendRows = Math.ceil((models.length + 2) / Math.floor((width - left) / legendColumn));
  const height = top + cards.length * (laneHeight + laneGap) + legendRows * legendRow + 24;
  const x = (ms: number): number => left + (Math.min(ms, endMs) / Math.max(1, endMs)) * (width - left - right);
  const body = [
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    `<text x="${left}" y="28" font-size="17" font-weight="bold">${escaped(title)}</text>`,
    ...cards.flatMap((card, index) => lane(card, top + index * (laneHeight + laneGap), x, endMs, colourOf, marks)),
    ...legend(top + cards.length * (laneHeight + laneGap) + 6, colourOf),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12" fill="#222222">\n${body.join('\n')}\n</svg>\n`;
}

function lane(card: CardTimeline, topY: number, x: (ms: number) => number, endMs: number, colourOf: ReadonlyMap<string, string>, marks: readonly Mark[]): string[] {
  const bottom = topY + laneHeight;
  const y = (bytes: number): number => bottom - (Math.min(bytes, card.totalBytes) / card.totalBytes) * laneHeight;
  const steps = card.moments.map((moment, index) => ({ moment, fromMs: moment.atMs, toMs: card.moments[index + 1]?.atMs ?? endMs }));
  const band = (bytesOf: (moment: CardMoment) => number, belowOf: (moment: CardMoment) => number, colour: string): string => {
    const rectangles = merged(steps.map(({ moment, fromMs, toMs }) => ({ fromMs, toMs, below: belowOf(moment), bytes: bytesOf(moment) }))).filter(({ bytes }) => bytes > 0)
      .map(({ fromMs, toMs, below, bytes }) => `M${place(x(fromMs))} ${place(y(below))}V${place(y(below + bytes))}H${place(x(toMs))}V${place(y(below))}Z`);
    return rectangles.length === 0 ? '' : `<path fill="${colour}" d="${rectangles.join('')}"/>`;
  };
  const orders = [...colourOf.keys()];
  const below = (model: string) => (moment: CardMoment): number => orders.slice(0, orders.indexOf(model)).reduce((sum, other) => sum + (moment.models.get(other) ?? 0), moment.otherBytes);
  const all = (moment: CardMoment): number => [...moment.models.values()].reduce((sum, bytes) => sum + bytes, moment.otherBytes);
  return [
    `<text x="${left}" y="${topY - 8}">${escaped(card.device)}, ${gibibytes(card.totalBytes)} GiB</text>`,
    `<rect x="${left}" y="${topY}" width="${width - left - right}" height="${laneHeight}" fill="#f5f5f5"/>`,
    band((moment) => moment.otherBytes, () => 0, otherColour),
    ...orders.map((model) => band((moment) => moment.models.get(model) ?? 0, below(model), colourOf.get(model) ?? otherColour)),
    band((moment) => moment.foreignBytes, all, foreignColour),
    `<path d="M${left} ${place(y(card.totalBytes - card.reserveBytes))}H${width - right}" stroke="#bb0000" stroke-dasharray="5 4"/>`,
    ...marks.slice(0, marksMax).map(({ atMs, text }) => `<path d="M${place(x(atMs))} ${topY}V${bottom}" stroke="#000000" stroke-opacity="0.45" stroke-dasharray="2 3"><title>${escaped(text)} at ${(atMs / 1_000).toFixed(1)} s</title></path>`),
    ...[0, 0.5, 1].map((part) => `<text x="${left - 8}" y="${place(y(card.totalBytes * part) + 4)}" text-anchor="end">${gibibytes(card.totalBytes * part)} GiB</text>`),
    ...ticks(endMs).map((ms) => `<text x="${place(x(ms))}" y="${bottom + 16}" text-anchor="middle">${Math.round(ms / 1_000)} s</text>`),
  ].filter((line) => line !== '');
}

interface Step {
  readonly fromMs: number;
  readonly toMs: number;
  readonly below: number;
  readonly bytes: number;
}

/** Steps that differ in time alone are one. */
function merged(steps: readonly Step[]): Step[] {
  const found: Step[] = [];
  for (const step of steps) {
    const last = found.at(-1);
    if (last?.bytes === step.bytes && last.below === step.below) found[found.length - 1] = { ...last, toMs: step.toMs };
    else found.push(step);
  }
  return found;
}

function legend(topY: number, colourOf: ReadonlyMap<string, string>): string[] {
  const entries = [...colourOf, ['floors, residue, returning', otherColour], ['strangers', foreignColour]] as [string, string][];
  const columns = Math.floor((width - left) / legendColumn);
  return entries.map(([name, colour], index) => {
    const entryX = left + (index % columns) * legendColumn;
    const entryY = topY + Math.floor(index / columns) * legendRow;
    return `<rect x="${entryX}" y="${entryY}" width="12" height="12" fill="${colour}"/><text x="${entryX + 18}" y="${entryY + 10}">${escaped(name.length > 24 ? `${name.slice(0, 23)}…` : name)}</text>`;
  });
}

/** About six round moments. */
function ticks(endMs: number): number[] {
  const rawMs = Math.max(1_000, endMs / 6);
  const power = 10 ** Math.floor(Math.log10(rawMs));
  const stepMs = [1, 2, 5, 10].map((factor) => factor * power).find((ms) => ms >= rawMs) ?? rawMs;
  return Array.from({ length: Math.floor(endMs / stepMs) + 1 }, (_, index) => index * stepMs);
}

const place = (value: number): string => value.toFixed(1);
const gibibytes = (bytes: number): string => (bytes / 1024 ** 3).toFixed(bytes < 1024 ** 3 ? 2 : 0);
const escaped = (text: string): string => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
