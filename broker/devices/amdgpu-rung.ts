/** AMD cards, by what the amdgpu driver shows in sysfs. No library, no context, no process. */
import { readFile, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { defaultLimits, durationText } from '../../protocol/index.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import { within } from './deadline.js';
import { readAmdProcesses } from './amdgpu-processes.js';
import type { CardDescription, Discovery, Reading, Rung, UnmeasuredCard } from './types.js';
import { normaliseDevice } from './uuid.js';
import { amdVisibility } from './visibility.js';

export interface AmdgpuRungOptions {
  /** Default `/sys` and `/proc`; tests give folders of their own. */
  readonly sysRoot?: string;
  readonly procRoot?: string;
  readonly probeTimeoutMs?: number;
  readonly nowUs?: () => number;
}

interface AmdCard {
  readonly device: string;
  readonly name: string;
  readonly folder: string;
  /** PCI address, as fdinfo names the card. */
  readonly pciSlot: string | null;
  readonly rocrName: string;
  readonly display: boolean;
}

/** A figure of sysfs: a whole number of bytes, or why there is none. */
type Figure = { readonly bytes: number } | { readonly reading: 'unsupported' | 'failed' | 'unknown'; readonly reason: string };

export function createAmdgpuRung(options: AmdgpuRungOptions = {}): Rung {
  const sysRoot = options.sysRoot ?? '/sys';
  const procRoot = options.procRoot ?? '/proc';
  const probeTimeoutMs = options.probeTimeoutMs ?? defaultLimits.probeTimeoutMs;
  const nowUs = options.nowUs ?? monotonicUs;
  const cards = new Map<string, AmdCard>();
  const inFlight = new Map<string, Promise<Reading>>();

  /** A file of a card that hangs hangs for every reader: whoever comes meanwhile waits for the same read. */
  function readOnce(card: AmdCard): Promise<Reading> {
    const running = inFlight.get(card.device) ?? readCard(card, procRoot, nowUs()).finally(() => inFlight.delete(card.device));
    inFlight.set(card.device, running);
    return running;
  }

  async function list(): Promise<Discovery> {
    const found = await findCards(sysRoot);
    if (found.length === 0) return { unavailable: 'no amdgpu card in sysfs' };
    for (const card of found) cards.set(card.device, card);
    return describe(found, (await readText(join(sysRoot, 'module/amdgpu/version'))) ?? 'amdgpu');
  }

  return {
    truth: 'amdgpu',
    async discover(): Promise<Discovery> {
      return (await within(probeTimeoutMs, list())) ?? { unavailable: `sysfs gave no answer within ${durationText(probeTimeoutMs)}` };
    },
    async read(device): Promise<Reading> {
      const askedAtUs = nowUs();
      const card = cards.get(device);
      if (card === undefined) return { kind: 'missing', device, takenAtUs: askedAtUs, reading: 'unknown', reason: 'amdgpu shows no such card' };
      const late = { kind: 'missing', device, takenAtUs: askedAtUs, reading: 'timed_out', reason: `sysfs gave no answer within ${durationText(probeTimeoutMs)}` } as const;
      return (await within(probeTimeoutMs, readOnce(card))) ?? late;
    },
    async close(): Promise<void> {
      cards.clear();
    },
  };
}

async function readCard(card: AmdCard, procRoot: string, takenAtUs: number): Promise<Reading> {
  const { device, folder, pciSlot } = card;
  const total = await readFigure(join(folder, 'mem_info_vram_total'));
  const used = await readFigure(join(folder, 'mem_info_vram_used'));
  if (!('bytes' in total)) return { kind: 'missing', device, takenAtUs, ...total };
  if (!('bytes' in used)) return { kind: 'missing', device, takenAtUs, ...used };
  if (total.bytes === 0 || used.bytes > total.bytes) {
    return { kind: 'missing', device, takenAtUs, reading: 'unknown', reason: `amdgpu says ${used.bytes} of ${total.bytes} bytes, which cannot be` };
  }
  const read = pciSlot === null ? null : await readAmdProcesses(procRoot, pciSlot);
  const processes = read?.map(({ pid, usedBytes }) => ({ pid, usedBytes })) ?? null;
  const spilled = (read ?? []).flatMap(({ pid, spilledBytes }) => (spilledBytes === null ? [] : [{ pid, spilledBytes }]));
  return { kind: 'read', device, takenAtUs, usedBytes: used.bytes, totalBytes: total.bytes, truth: 'amdgpu', processes, ...(spilled.length === 0 ? {} : { spilled }) };
}

async function describe(found: readonly AmdCard[], driver: string): Promise<Discovery> {
  const cards: CardDescription[] = [];
  const unmeasured: UnmeasuredCard[] = [];
  for (const { device, name, folder, rocrName, display } of found) {
    // ROCr counts in an order of its own, which is known of one card alone.
    const counted = { maker: 'amd', index: found.length === 1 ? 0 : null } as const;
    const total = await readFigure(join(folder, 'mem_info_vram_total'));
    const visibility = amdVisibility(rocrName);
    if (!('bytes' in total) || total.bytes === 0) unmeasured.push({ device, name, visibility, counted, reason: 'bytes' in total ? 'its total is 0' : total.reason });
    // What fdinfo shows of compute memory differs from kernel to kernel, so a release is confirmed by the card's total.
    else cards.push({ device, name, kind: 'gpu', totalBytes: total.bytes, confirms: 'total', display, floorBytes: null, visibility, counted });
  }
  return { cards, unmeasured, driver };
}

async function findCards(sysRoot: string): Promise<readonly AmdCard[]> {
  const drm = join(sysRoot, 'class/drm');
  const entries = await listNames(drm);
  const folders = entries.filter((name) => /^card\d+$/.test(name)).sort((a, b) => Number(a.slice(4)) - Number(b.slice(4)));
  const amd: string[] = [];
  for (const folder of folders) if ((await readText(join(drm, folder, 'device/vendor'))) === '0x1002') amd.push(join(drm, folder, 'device'));
  const cards: AmdCard[] = [];
  for (const folder of amd) {
    const card = await describeFolder(drm, folder, entries, amd.length);
    if (card !== null) cards.push(card);
  }
  return cards;
}

/**
 * A card without a unique id (most APUs) is named by its PCI address and shown to ROCr by index, which is certain only
 * when it is the only AMD card; beside others it is left out rather than guessed.
 */
async function describeFolder(drm: string, folder: string, entries: readonly string[], amdCards: number): Promise<AmdCard | null> {
  const uniqueId = await readText(join(folder, 'unique_id'));
  const pciSlot = /^PCI_SLOT_NAME=(.+)$/m.exec((await readText(join(folder, 'uevent'))) ?? '')?.[1] ?? null;
  const byId = uniqueId === null || /^0*$/.test(uniqueId) ? null : normaliseDevice(uniqueId);
  if (byId === null && (amdCards > 1 || pciSlot === null)) return null;
  const device = byId ?? `GPU-amd-${(pciSlot ?? '').replace(/[^0-9a-f]/gi, '-').toLowerCase()}`;
  return {
    device,
    name: (await readText(join(folder, 'product_name'))) ?? `AMD ${(await readText(join(folder, 'device'))) ?? 'card'}`,
    folder,
    pciSlot,
    rocrName: byId ?? '0',
    display: await drivesDisplay(drm, basename(join(folder, '..')), entries),
  };
}

async function drivesDisplay(drm: string, card: string, entries: readonly string[]): Promise<boolean> {
  for (const connector of entries.filter((name) => name.startsWith(`${card}-`))) {
    if ((await readText(join(drm, connector, 'status'))) === 'connected') return true;
  }
  return false;
}

async function readFigure(path: string): Promise<Figure> {
  let text: string;
  try {
    text = (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (!(error instanceof Error && 'code' in error)) throw error;
    const missing = error.code === 'ENOENT';
    return { reading: missing ? 'unsupported' : 'failed', reason: `${path}: ${missing ? 'the driver shows no such figure' : error.message}` };
  }
  const bytes = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(bytes) ? { bytes } : { reading: 'unknown', reason: `${path} says ${JSON.stringify(text.slice(0, 40))}` };
}

/** The text of a small file, trimmed; null when it is not there, cannot be read or is empty. */
async function readText(path: string): Promise<string | null> {
  try {
    const text = (await readFile(path, 'utf8')).trim();
    return text === '' ? null : text;
  } catch (error) {
    if (error instanceof Error && 'code' in error) return null;
    throw error;
  }
}

async function listNames(path: string): Promise<readonly string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error) return [];
    throw error;
  }
}
