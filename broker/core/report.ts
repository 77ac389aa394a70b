/** How the core speaks: effects of this step, counters, explain records. */
import { durationText } from '../../protocol/index.js';
import type { Effect, PublishedName } from './effects.js';
import type { ExplainRecord, ExplainedVictim, Verdict } from './explain.js';
import { msSince } from './clock.js';
import type { AdmissionNumbers, Core } from './state.js';
import type { RequestClass } from '../../protocol/index.js';

/** Victims shown in one record; the rest are counted in its text. */
const explainedVictimsMax = 64;
const noVictims: readonly ExplainedVictim[] = [];

export function emit(core: Core, effect: Effect): void {
  core.effects.push(effect);
}

export function count(core: Core, counter: string, by = 1): void {
  core.counters.set(counter, (core.counters.get(counter) ?? 0) + by);
}

export function publish(core: Core, name: PublishedName, data: Readonly<Record<string, string | number | boolean | null>>): void {
  emit(core, { type: 'publish', name, data });
}

/** Answered requests remembered a process: more than can be on the wire twice at a time. */
const answeredMax = 64;

/** A request has had its one final answer (D3). */
export function noteAnswered(core: Core, generation: string, request: number): void {
  const answered = core.processes.get(generation)?.answered;
  if (answered === undefined) return;
  answered.add(request);
  if (answered.size <= answeredMax) return;
  for (const oldest of answered) {
    answered.delete(oldest);
    return;
  }
}

export interface Explained {
  readonly verdict: Verdict;
  readonly text: string;
  readonly generation: string;
  readonly request?: number | null;
  readonly model?: string | null;
  readonly device?: string | null;
  readonly class?: RequestClass | null;
  readonly arrivedUs?: number;
  readonly numbers?: AdmissionNumbers | null;
  readonly victims?: readonly ExplainedVictim[];
  readonly unverified?: boolean;
}

/** Records why; returns the record's id. The ring keeps the youngest `explainRecordsMax`. */
export function explain(core: Core, why: Explained): string {
  const number = core.nextExplain++;
  const record: ExplainRecord = {
    id: `${core.options.bootId}-x${String(number)}`,
    atUs: core.clockUs,
    verdict: why.verdict,
    text: why.text,
    generation: why.generation,
    request: why.request ?? null,
    model: why.model ?? null,
    device: why.device ?? null,
    class: why.class ?? null,
    waitedMs: why.arrivedUs === undefined ? 0 : msSince(core, why.arrivedUs),
    numbers: why.numbers ?? null,
    victims: why.victims === undefined ? noVictims : why.victims.slice(0, explainedVictimsMax),
    unverified: why.unverified ?? false,
  };
  core.explains[(number - 1) % core.options.limits.explainRecordsMax] = record;
  emit(core, { type: 'explain', record });
  return record.id;
}

export interface ExplainFilter {
  readonly id?: string | null;
  /** Records filed under it, and plans that chose it as a victim. */
  readonly model?: string | null;
  readonly device?: string | null;
  /** Records at most; default 100. */
  readonly count?: number;
}

/** Explain records that match, newest first. */
export function explainRecords(core: Core, filter: ExplainFilter = {}): ExplainRecord[] {
  const found: ExplainRecord[] = [];
  const kept = core.explains.length;
  const most = filter.count ?? 100;
  for (let age = 1; age <= kept && found.length < most; age++) {
    const place = (core.nextExplain - 1 - age) % core.options.limits.explainRecordsMax;
    const record = core.explains[place];
    if (record === undefined) break;
    if (differs(filter.id, record.id) || differs(filter.device, record.device)) continue;
    if (differs(filter.model, record.model) && !choseVictim(record, filter.model)) continue;
    found.push(record);
  }
  return found;
}

function choseVictim({ victims }: ExplainRecord, model: string | null | undefined): boolean {
  return victims.some((victim) => victim.model === model && victim.passedOver === null);
}

function differs(wanted: string | null | undefined, is: string | null): boolean {
  return wanted !== null && wanted !== undefined && wanted !== is;
}

/** Names told in one sentence; the rest are counted. */
const listedMax = 3;

/** "a, b, c and 2 more". */
export function listed(names: readonly string[], between = ', '): string {
  const shown = names.slice(0, listedMax);
  return names.length > shown.length ? `${shown.join(between)} and ${String(names.length - shown.length)} more` : shown.join(between);
}

/** "1 call", "3 calls". */
export function callsInWords(calls: number): string {
  return calls === 1 ? '1 call' : `${String(calls)} calls`;
}

/** "8 s", whole ones. */
export function secondsInWords(ms: number): string {
  return ms < 1_000 ? '0 s' : durationText(Math.floor(ms / 1_000) * 1_000);
}

/** "3.2 GiB", for sentences. */
export function inWords(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let amount = bytes;
  let unit = 0;
  while (Math.abs(amount) >= 1_024 && unit < units.length - 1) {
    amount /= 1_024;
    unit++;
  }
  return `${unit === 0 ? String(amount) : amount.toFixed(1)} ${units[unit] ?? 'B'}`;
}
