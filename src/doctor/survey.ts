/** What every rung of the truth ladder says of every card. The ladder itself stops at the first answer; here all are asked. */
import type { CardDescription, Discovery, Reading, Rung, UnmeasuredCard } from '../../broker/devices/index.js';
import { normaliseDevice } from '../../broker/devices/index.js';
import type { TruthSource } from '../../protocol/index.js';

type Works = Extract<Discovery, { readonly driver: string }>;

export type RungSeen =
  | { readonly truth: TruthSource; readonly works: false; readonly reason: string }
  | { readonly truth: TruthSource; readonly works: true; readonly found: Works; readonly readings: readonly Reading[]; readonly readMs: number | null };

/** A card as all rungs see it. */
export interface CardSeen {
  readonly device: string;
  readonly name: string;
  /** Of the highest rung that shows it with a size; null when none can tell its size. */
  readonly description: CardDescription | null;
  readonly unmeasured: UnmeasuredCard | null;
  /** Highest rung first. */
  readonly readings: readonly { readonly truth: TruthSource; readonly reading: Reading }[];
}

export async function surveyRungs(rungs: readonly Rung[]): Promise<readonly RungSeen[]> {
  return Promise.all(rungs.map(surveyRung));
}

async function surveyRung(rung: Rung): Promise<RungSeen> {
  const { truth } = rung;
  const found = await rung.discover();
  if ('unavailable' in found) return { truth, works: false, reason: found.unavailable };
  const beganMs = performance.now();
  // One after another: the time of one reading is what the broker will wait for.
  const readings: Reading[] = [];
  for (const { device } of found.cards) readings.push(await rung.read(device));
  const readMs = readings.length === 0 ? null : (performance.now() - beganMs) / readings.length;
  return { truth, works: true, found, readings, readMs };
}

export function surveyCards(rungs: readonly RungSeen[]): readonly CardSeen[] {
  const cards = new Map<string, CardSeen>();
  for (const rung of rungs) {
    if (!rung.works) continue;
    for (const card of rung.found.cards) {
      const device = normaliseDevice(card.device) ?? card.device;
      const known = cards.get(device);
      const readings = rung.readings.filter((reading) => reading.device === card.device).map((reading) => ({ truth: rung.truth, reading }));
      cards.set(device, {
        device, name: known?.name ?? card.name, description: known?.description ?? { ...card, device }, unmeasured: known?.unmeasured ?? null,
        readings: [...known?.readings ?? [], ...readings],
      });
    }
    for (const card of rung.found.unmeasured ?? []) {
      const device = normaliseDevice(card.device) ?? card.device;
      const known = cards.get(device);
      if (known === undefined) cards.set(device, { device, name: card.name, description: null, unmeasured: card, readings: [] });
    }
  }
  // In the driver's own order: masks count by it.
  return [...cards.values()];
}

/** The reading that the broker would go by; null when no rung gives one. */
export function bestReading(card: CardSeen): Extract<Reading, { kind: 'read' }> | null {
  for (const { reading } of card.readings) if (reading.kind === 'read') return reading;
  return null;
}
