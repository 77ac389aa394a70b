/** From `devices` of the options to the cards a broker owns. */
import { totalmem } from 'node:os';
import { LeaseholdError } from '../../protocol/index.js';
import { inWords } from '../../broker/core/report.js';
import {
  DeviceLadder, HostMemory, SimulatedCard, cpuCard, cpuDevice, cpuReading, createRealRungs, defaultHostReserveBytes, defaultReserveBytes, defaultYieldFreeBytes, isSimulatedSpec, isUnified, maskedCards, normaliseDevice,
  parseSimulatedSpec, simulatedDevice, type CardDescription, type Inventory,
} from '../../broker/devices/index.js';
import type { CardReader, Log, OwnedCard } from '../../broker/shell/index.js';
import { monotonicUs } from '../../protocol/node/index.js';
import type { OrchestratorOptions, YieldFree } from './options.js';
import { optionsHelp } from './tables.js';

export type DeviceOptions = Pick<OrchestratorOptions, 'devices' | 'reserveBytes' | 'yieldFreeBytes'>;

/**
 * Words mean: `auto` every real card that the masks of this process leave, else the CPU; `cpu` the pseudo-card on
 * which nothing is leased; `sim:…` a simulated card; anything else the UUID of
 * a real card. Rejects with `device_unknown` for a UUID that is not there.
 */
export async function discoverCards(options: DeviceOptions, stateId: string, log: Log): Promise<readonly OwnedCard[]> {
  const words = options.devices ?? ['auto'];
  if (words.length === 0) throw new LeaseholdError('config_invalid', { path: 'devices', where: 'devices', reason: 'the list is empty; use auto, cpu, sim:24MiB or UUIDs', option: 'devices' }, { help: optionsHelp });
  const simulated = words.filter(isSimulatedSpec).map((word, index) => simulatedCard(word, stateId, index));
  const others = words.filter((word) => !isSimulatedSpec(word));
  const real = others.some((word) => word !== 'cpu') ? await realCards(others, simulated.length > 0, log) : [];
  const cpu = others.includes('cpu') && !real.some(({ card }) => card.kind === 'cpu') ? [{ card: cpuCard(), reader: cpuReader }] : [];
  const found = [...simulated, ...real, ...cpu];
  try {
    const reserves = reservesOf(found.map(({ card }) => card), options.reserveBytes ?? null);
    const yields = yieldsOf(found.map(({ card }) => card), reserves, options.yieldFreeBytes ?? null);
    return found.map((each, index) => ({ ...each, reserveBytes: reserves[index] ?? 0, yieldFreeBytes: yields[index] ?? null }));
  } catch (error) {
    for (const { reader } of found) await reader.close();
    throw error;
  }
}

interface Found {
  readonly card: CardDescription;
  readonly reader: CardReader;
}

const cpuReader: CardReader = {
  read: async () => cpuReading(monotonicUs()),
  close: async () => undefined,
};

function simulatedCard(word: string, stateId: string, index: number): Found {
  checkSize(word);
  const reader = new SimulatedCard({ ...parseSimulatedSpec(word), device: simulatedDevice(stateId, index) });
  return { card: reader.description, reader };
}

/** A size that is none says little by itself: what it may look like is told. */
function checkSize(word: string): void {
  const size = word.slice('sim:'.length).split(',')[0]?.trim() ?? '';
  if (/^\d+([KMGT]i?B)?$/.test(size)) {
    checkUnit(word, size);
    return;
  }
  const forms = 'sim:SIZE[,floor=SIZE][,lag=200ms][,blind][,name=NAME], each SIZE a whole number and KiB, MiB, GiB, TiB, KB, MB, GB, TB or nothing (bytes)';
  throw new LeaseholdError('config_invalid', { path: 'devices', where: word.slice(0, 64), reason: `${JSON.stringify(size.slice(0, 64))} is no size; a simulated card is ${forms}`, option: 'devices' }, { help: optionsHelp });
}

/** A card of a few bytes is never meant. */
function checkUnit(word: string, size: string): void {
  if (!/^\d+$/.test(size) || Number(size) >= plainBytesMin) return;
  throw new LeaseholdError('config_invalid', { path: 'devices', where: word.slice(0, 64), reason: `${size} is a size in bytes, and no card is that small: the unit is missing, as in sim:${size === '0' ? '26' : size}MiB`, option: 'devices' }, { help: optionsHelp });
}

/** A simulated card smaller than this must be written with a unit. */
const plainBytesMin = 65_536;

async function realCards(words: readonly string[], besideSimulated: boolean, log: Log): Promise<readonly Found[]> {
  const ladder = new DeviceLadder({
    rungs: createRealRungs(),
    memory: new HostMemory(),
    log: (level, message, fields) => { log[level](fields, message); },
  });
  const { cards, unmeasured, notes } = await ladder.discover();
  for (const note of notes) log.info({ note }, 'a way to read cards does not work here');
  const named = cards.filter(({ device }) => words.some((word) => normaliseDevice(word) === device));
  const visible = words.includes('auto') ? await visibleCards(ladder, cards, unmeasured, log) : [];
  const union = cards.filter((card) => named.includes(card) || visible.includes(card));
  // A mask that hides every card leaves what a machine without cards has.
  const chosen = union.length === 0 && words.includes('auto') ? [cpuCard()] : union;
  const unknown = words.find((word) => word !== 'auto' && word !== 'cpu' && !cards.some(({ device }) => device === normaliseDevice(word)));
  // The pseudo-card stands in for "no card"; beside a simulated one there is a card.
  const owned = chosen.filter(({ device }) => device !== cpuDevice || !besideSimulated);
  if (unknown !== undefined || owned.length === 0) await ladder.close();
  if (unknown !== undefined) throw unknownDevice(unknown, cards);
  return owned.map((card) => ({ card: withMemory(card), reader: ladder }));
}

/** A card that has no memory of its own is known as such. */
function withMemory(card: CardDescription): CardDescription {
  return card.kind === 'gpu' && isUnified(card, totalmem()) ? { ...card, unified: true } : card;
}

/** What is named by UUID is meant; `auto` is what this process was given. */
async function visibleCards(ladder: DeviceLadder, cards: readonly CardDescription[], unmeasured: Inventory['unmeasured'], log: Log): Promise<readonly CardDescription[]> {
  try {
    const visible = maskedCards(cards, unmeasured, process.env);
    const hidden = cards.filter((card) => !visible.includes(card)).map(({ device }) => device);
    if (hidden.length > 0) log.info({ hidden: hidden.join(', ') }, 'cards that the visibility masks of this process hide are not managed');
    return visible;
  } catch (error) {
    await ladder.close();
    throw error;
  }
}

/** Bytes kept free, card by card. Throws `bytes_invalid`, or `device_unknown` for a reserve on a card that is not there. */
function reservesOf(cards: readonly CardDescription[], given: OrchestratorOptions['reserveBytes']): readonly number[] {
  const byDevice = typeof given === 'object' && given !== null ? given : {};
  for (const [word, bytes] of Object.entries(byDevice)) {
    checkReserve(`reserveBytes.${word}`, bytes);
    if (!cards.some(({ device }) => device === word || device === normaliseDevice(word))) throw unknownDevice(word, cards);
  }
  if (typeof given === 'number') checkReserve('reserveBytes', given);
  const named = new Map(Object.entries(byDevice).map(([word, bytes]) => [normaliseDevice(word) ?? word, bytes]));
  return cards.map((card) => {
    const bytes = typeof given === 'number' ? given : named.get(card.device);
    if (bytes !== undefined) checkRoom(card, bytes);
    return bytes ?? (card.unified === true ? defaultHostReserveBytes(card.totalBytes) : defaultReserveBytes(card, process.platform));
  });
}

/** Bytes made free for other programs, card by card; null: none. Throws as `reservesOf` does. */
function yieldsOf(cards: readonly CardDescription[], reserves: readonly number[], given: OrchestratorOptions['yieldFreeBytes']): readonly (number | null)[] {
  const byDevice = typeof given === 'object' && given !== null ? given : {};
  for (const [word, free] of Object.entries(byDevice)) {
    checkYield(`yieldFreeBytes.${word}`, free);
    if (!cards.some(({ device }) => device === word || device === normaliseDevice(word))) throw unknownDevice(word, cards);
  }
  if (typeof given === 'number' || typeof given === 'string') checkYield('yieldFreeBytes', given);
  const named = new Map(Object.entries(byDevice).map(([word, free]) => [normaliseDevice(word) ?? word, free]));
  return cards.map((card, index) => {
    const free = typeof given === 'object' ? named.get(card.device) : given;
    // Nothing is leased on the CPU, and nobody else's bytes are read there.
    if (free === undefined || free === 'off' || card.totalBytes === 0) return null;
    if (free === 'auto') return defaultYieldFreeBytes(card.totalBytes);
    checkRoom(card, free + (reserves[index] ?? 0), 'yieldFreeBytes');
    return free;
  });
}

function checkYield(field: string, free: YieldFree): void {
  if (free === 'auto' || free === 'off' || (Number.isSafeInteger(free) && (free) > 0)) return;
  throw new LeaseholdError('config_invalid', { path: field, where: field, reason: `${JSON.stringify(free)} is not off, auto or a number of bytes`, option: field }, { help: optionsHelp });
}

/** A reserve that leaves nothing of a card is a mistake, most often in its unit. */
function checkRoom({ device, totalBytes }: CardDescription, reserveBytes: number, option = 'reserveBytes'): void {
  if (totalBytes === 0 || reserveBytes < totalBytes) return;
  throw new LeaseholdError('config_invalid', { path: option, where: device, reason: `${inWords(reserveBytes)} would be kept free of ${inWords(totalBytes)}: nothing could be granted there`, option }, { help: 'Give less than the card has; 0 keeps nothing free.' });
}

function checkReserve(field: string, bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new LeaseholdError('bytes_invalid', { field, value: String(bytes), minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
}

function unknownDevice(device: string, cards: readonly CardDescription[]): LeaseholdError {
  return new LeaseholdError('device_unknown', { device, known: cards.map((card) => card.device).join(', ') });
}
