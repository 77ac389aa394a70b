/** What `nvidia-smi --format=csv,noheader,nounits` prints, as readings. Pure. */
import type { MissingReading } from '../core/events.js';
import { normaliseDevice } from './uuid.js';

const mebibyte = 1_024 ** 2;

export type SmiFigure =
  | { readonly kind: 'bytes'; readonly bytes: number }
  | { readonly kind: 'missing'; readonly reading: MissingReading; readonly reason: string; readonly lost?: boolean };

export interface SmiRow {
  readonly device: string;
  readonly total: SmiFigure;
  readonly used: SmiFigure;
  /** The fields asked for after uuid, memory.total and memory.used. */
  readonly others: readonly string[];
}

/** MiB as a whole number; anything in brackets is the tool's way to say that there is no number (B103). */
export function parseSmiFigure(text: string): SmiFigure {
  if (/^\d{1,9}$/.test(text)) return { kind: 'bytes', bytes: Number(text) * mebibyte };
  if (/^\[?(N\/A|Not Supported)\]?$/i.test(text)) return { kind: 'missing', reading: 'unsupported', reason: `nvidia-smi says ${text}` };
  if (/^\[?(GPU is lost|GPU requires reset)\]?$/i.test(text)) return { kind: 'missing', reading: 'failed', reason: `nvidia-smi says ${text}`, lost: true };
  if (/^\[.*\]$/.test(text)) return { kind: 'missing', reading: 'failed', reason: `nvidia-smi says ${text}` };
  return { kind: 'missing', reading: 'unknown', reason: `nvidia-smi says ${JSON.stringify(text.slice(0, 80))}, which is no number` };
}

/** Rows that begin with a card's UUID, by card; all else (warnings, errors between them) is passed over. */
export function parseSmiRows(stdout: string): ReadonlyMap<string, SmiRow> {
  const rows = new Map<string, SmiRow>();
  for (const line of stdout.split('\n')) {
    const [uuid, total, used, ...others] = line.split(',').map((field) => field.trim());
    const device = uuid === undefined ? null : normaliseDevice(uuid);
    if (device === null || total === undefined || used === undefined) continue;
    rows.set(device, { device, total: parseSmiFigure(total), used: parseSmiFigure(used), others });
  }
  return rows;
}
