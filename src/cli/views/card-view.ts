/** One card as people see it: a head, a bar, a legend. */
import type { CardView, LeaseView } from '../../orchestrator/index.js';
import { renderBar, swatch, type Stretch } from '../terminal/bars.js';
import type { Palette, Tone } from '../terminal/colour.js';
import { formatBytes, formatMs } from '../terminal/size-format.js';
import { displayWidth, wrap } from '../terminal/width.js';
import { shortDevice, type Names } from './names.js';
import { thrashAdvice, thrashText } from './thrash-text.js';

/** Everything that counts against a card, in the order of the bar: leases by model, then what is no lease, then what is free. */
export function cardStretches(card: CardView, leases: readonly LeaseView[], names: Names): readonly Stretch[] {
  const byModel = new Map<string, number>();
  for (const { device, model, chargedBytes } of leases) {
    if (device === card.device) byModel.set(model, (byModel.get(model) ?? 0) + chargedBytes);
  }
  const models = [...byModel].map(([key, bytes]): Stretch => ({ label: names.model(key), bytes, tone: 'model', index: names.index(key) }));
  models.sort((left, right) => left.index - right.index);
  const rest = (label: string, bytes: number | null, tone: Tone): Stretch => ({ label, bytes: bytes ?? 0, tone, index: 0 });
  const taken = [
    ...models,
    rest('floors', card.floorBytes, 'floor'),
    rest('residue', card.residueBytes, 'residue'),
    rest('returning', card.returningBytes, 'returning'),
    rest('held', card.holdBytes, 'hold'),
    rest('foreign', card.foreignBytes, 'foreign'),
  ];
  const takenBytes = taken.reduce((sum, { bytes }) => sum + bytes, 0);
  const freeBytes = Math.max(0, card.totalBytes - card.reserveBytes - takenBytes);
  return [...taken, rest('free', freeBytes, 'free'), rest('reserve', card.reserveBytes, 'reserve')];
}

/** What the ledger counts against a card; a bar shows it, and what the card itself says is used may differ. */
export function chargedBytes({ leasedBytes, floorBytes, residueBytes, returningBytes }: CardView): number {
  return leasedBytes + floorBytes + residueBytes + returningBytes;
}

/** Bytes by which what is charged, held and foreign exceeds what may be used; 0 when it does not. */
export function overshootBytes(card: CardView): number {
  const used = chargedBytes(card) + card.holdBytes + (card.foreignBytes ?? 0);
  return Math.max(0, used - (card.totalBytes - card.reserveBytes));
}

/** The lines of one card, each at most `columns` wide. A pseudo-card without bytes has a head alone. */
export function renderCard(card: CardView, leases: readonly LeaseView[], names: Names, columns: number, palette: Palette): string[] {
  const head = renderHead(card, columns, palette);
  if (card.totalBytes === 0) return head;
  const stretches = cardStretches(card, leases, names);
  const over = overshootBytes(card);
  const warning = over === 0 ? [] : [palette.red(` over its limit by ${formatBytes(over)}`)];
  return [...head, ` ${renderBar(stretches, columns - 2, palette)}`, ...renderLegend(stretches, columns, palette), ...warning, ...renderThrash(card, names, columns, palette), ...renderYields(card, columns, palette)];
}

/** What is kept free for other programs, who presses, and why it cannot be done. */
function renderYields({ yields }: CardView, columns: number, palette: Palette): string[] {
  if (yields === null) return [];
  const { freeBytes, pressed, blind } = yields;
  const named = (pressed?.strangers ?? []).map(({ pid, usedBytes }) => `pid ${String(pid)} ${formatBytes(usedBytes)}`).join(', ');
  const now = blind !== null ? `, and cannot: ${blind}`
    : pressed === null ? ''
    : `: for ${formatMs(pressed.sinceMs)} they press, with ${formatBytes(pressed.strangersBytes)}${named === '' ? '' : ` (${named})`}`;
  const paint = pressed === null && blind === null ? palette.dim : palette.yellow;
  return wrap(`gives way to other programs until ${formatBytes(freeBytes)} are free${now}`, columns - 2).map((line) => ` ${paint(line)}`);
}

/** Who takes turns there, what is lacking, and what can be done. */
function renderThrash({ thrashing }: CardView, names: Names, columns: number, palette: Palette): string[] {
  if (thrashing === null) return [];
  const indented = (text: string): string[] => wrap(names.inText(text), columns - 2).map((line) => ` ${line}`);
  return [...indented(`thrashes: ${thrashText(thrashing)}`).map(palette.yellow), ...indented(thrashAdvice).map(palette.dim)];
}

/** The machine's memory as one more bar: what each model has there. */
export function renderMemory(host: CardView, leases: readonly LeaseView[], names: Names, columns: number, palette: Palette): string[] {
  const shares = leases.map((lease) => ({ ...lease, device: host.device, chargedBytes: lease.hostChargedBytes ?? 0 }));
  return renderCard(host, shares, names, columns, palette);
}

function renderHead(card: CardView, columns: number, palette: Palette): string[] {
  const kinds = { gpu: card.name, simulated: 'simulated card', cpu: 'CPU, nothing is leased there', host: 'memory of the machine' };
  const dot = palette.dim(' · ');
  const name = `${palette.bold(shortDevice(card.device))}  ${kinds[card.kind]}`;
  if (card.totalBytes === 0) return [name];
  const sized = `${name}${dot}${formatBytes(card.totalBytes)}`;
  const [text, paint] = measured(card, palette);
  const whole = `${sized}${dot}${paint(text)}`;
  return displayWidth(whole) <= columns ? [whole] : [sized, ...wrap(text, columns - 2).map((line) => `  ${paint(line)}`)];
}

/** Both figures by their names, who said so and how long ago; a probe that is silent is said first. */
function measured(card: CardView, palette: Palette): readonly [text: string, paint: (text: string) => string] {
  if (card.lost !== null) return [`lost ${formatMs(card.lost.sinceMs)} ago: ${card.lost.reason}`, palette.red];
  if (card.missing !== null) return [`no reading for ${formatMs(card.missing.sinceMs)} (${card.missing.reading})`, palette.red];
  if (card.truth === null) return ['not measured yet', palette.yellow];
  if (card.truth === 'ledger') return ['unverified: the ledger alone', palette.yellow];
  const by = card.truth === 'simulated' ? '' : ` by ${card.truth}`;
  // The two are of different moments: what was loaded since the reading is charged, and not yet read.
  return [`${formatBytes(chargedBytes(card))} charged; ${formatBytes(card.sampledUsedBytes)} used when read${by} ${formatMs(card.sampleAgeMs)} ago`, palette.dim];
}

/** Marks, names and sizes of every stretch with bytes, in as few lines as fit. */
function renderLegend(stretches: readonly Stretch[], columns: number, palette: Palette): string[] {
  const entries = stretches.filter(({ bytes }) => bytes > 0).map((stretch) => `${swatch(stretch, palette)} ${stretch.label} ${formatBytes(stretch.bytes)}`);
  const lines: string[] = [];
  let line = '';
  for (const entry of entries) {
    const longer = line === '' ? ` ${entry}` : `${line}   ${entry}`;
    if (displayWidth(longer) > columns && line !== '') {
      lines.push(line);
      line = ` ${entry}`;
    } else {
      line = longer;
    }
  }
  return line === '' ? lines : [...lines, line];
}
