/** Writes down what happens while a scenario is played, and sums it up: flat figures by name, and a timeline of each card. */
import type { CardView, LedgerView } from '../../broker/core/view.js';
import { classes, type RequestClass } from '../../protocol/index.js';
import type { AskedCall, CallEnd, MachineEvent } from './machine.js';
import type { FaultAct } from './scenario.js';

/** Figures by name; those of times are milliseconds of the scenario's time. */
export type Figures = Readonly<Record<string, number>>;

/** Who had how much of a card at one moment. */
export interface CardMoment {
  readonly atMs: number;
  /** Bytes charged to models, largest order of the lease first come; then what is nobody's model. */
  readonly models: ReadonlyMap<string, number>;
  readonly otherBytes: number;
  readonly foreignBytes: number;
}

export interface CardTimeline {
  readonly device: string;
  readonly totalBytes: number;
  readonly reserveBytes: number;
  readonly moments: readonly CardMoment[];
}

export interface Mark {
  readonly atMs: number;
  readonly text: string;
}

interface CallRecord {
  readonly call: AskedCall;
  readonly askedAtMs: number;
  begunAtMs: number | null;
  end: CallEnd | null;
}

const momentsMax = 4_000;

export class Recorder {
  private readonly calls: CallRecord[] = [];
  private readonly counts = new Map<string, number>();
  private readonly timesMs = new Map<string, number[]>();
  private readonly openedAtMs = new Map<string, number>();
  private readonly loadsOf = new Map<string, number>();
  /** What loads took of models that had been loaded before. */
  private reloadMs = 0;
  /** By process and model, and by its cards: a model over several is told as loaded on each, and was loaded once. */
  private readonly loadsIn = new Map<string, number>();
  private readonly timelines = new Map<string, { readonly card: CardView; readonly moments: CardMoment[] }>();
  private readonly marks: Mark[] = [];
  private strangerRefusedBytes = 0;
  private overcommittedBytes = 0;
  private overshootBytes = 0;
  /** Sums of bytes times milliseconds, for means over time. */
  private readonly area = { charged: 0, capacity: 0, lastAtMs: 0, lastCharged: 0, lastCapacity: 0 };

  asked(call: AskedCall, atMs: number): { begun(atMs: number): void; ended(end: CallEnd, atMs: number): void } {
    const record: CallRecord = { call, askedAtMs: atMs, begunAtMs: null, end: null };
    this.calls.push(record);
    return {
      begun: (begunAtMs) => { record.begunAtMs ??= begunAtMs; },
      ended: (end) => { record.end ??= end; },
    };
  }

  struck(act: FaultAct, atMs: number): void {
    this.count(`struck.${act.kind}`);
    this.marks.push({ atMs, text: act.kind === 'kill' ? `kill ${act.whom}` : act.kind });
  }

  /** A stranger wanted so much more than was free. */
  refusedStranger(bytes: number): void {
    this.strangerRefusedBytes += bytes;
  }

  /** An event of the broker: counts, and the stages of a hand-over from the first "wait" to resident. */
  heard({ name, atMs, data }: MachineEvent): void {
    const lease = text(data['lease']);
    const request = `${text(data['generation'])} ${text(data['request'])}`;
    switch (name) {
      case 'waiting': if (!this.openedAtMs.has(request)) this.openedAtMs.set(request, atMs); break;
      case 'granted': this.count('grants'); this.close('handOverMs.queued', request, atMs, 0); this.openedAtMs.set(`load ${lease}`, atMs); break;
      case 'denied': this.count('denials'); this.count(`denied.${text(data['code'])}`); this.openedAtMs.delete(request); break;
      case 'evicting': this.openedAtMs.set(`evict ${lease}`, atMs); break;
      case 'evicted': this.count('evictions'); this.close('handOverMs.evict', `evict ${lease}`, atMs, null); break;
      case 'loaded': this.loaded(data, `load ${lease}`, atMs); break;
      case 'spawned': this.count('spawns'); break;
      case 'eviction_failed': this.count('evictionsFailed'); break;
      case 'quarantined': this.count('quarantines'); break;
      case 'overshoot': this.count('overshoots'); break;
      case 'yielded': this.count('yields'); break;
      case 'residue': this.count('residues'); break;
      case 'sample_lost': this.count('samplesLost'); break;
      case 'thrashing': this.count('thrashes'); break;
      case 'process_ended': this.count('processesEnded'); break;
      default:
    }
  }

  /** The ledger just after a grant: what is then charged beyond the card was promised. */
  granted(ledger: LedgerView): void {
    for (const card of ledger.cards.filter(({ kind }) => kind !== 'cpu')) this.overcommittedBytes = Math.max(this.overcommittedBytes, chargedOf(card) - (card.totalBytes - card.reserveBytes));
  }

  /** The ledger at any moment: for the timeline; what is charged beyond the card was taken, not promised. */
  saw(ledger: LedgerView, atMs: number): void {
    let charged = 0;
    let capacity = 0;
    for (const card of ledger.cards.filter(({ kind }) => kind !== 'cpu')) {
      const models = new Map<string, number>();
      for (const lease of ledger.leases) if (lease.device === card.device && lease.chargedBytes > 0) models.set(lease.model, (models.get(lease.model) ?? 0) + lease.chargedBytes);
      const otherBytes = card.floorBytes + card.residueBytes + card.returningBytes;
      charged += chargedOf(card);
      capacity += card.totalBytes - card.reserveBytes;
      this.overshootBytes = Math.max(this.overshootBytes, chargedOf(card) - (card.totalBytes - card.reserveBytes));
      const timeline = this.timelines.get(card.device) ?? { card, moments: [] };
      this.timelines.set(card.device, timeline);
      addMoment(timeline.moments, { atMs, models, otherBytes, foreignBytes: card.foreignBytes ?? 0 });
    }
    const { area } = this;
    area.charged += area.lastCharged * (atMs - area.lastAtMs);
    area.capacity += area.lastCapacity * (atMs - area.lastAtMs);
    Object.assign(area, { lastAtMs: atMs, lastCharged: charged, lastCapacity: capacity });
  }

  cards(): readonly CardTimeline[] {
    return [...this.timelines.values()].map(({ card: { device, totalBytes, reserveBytes }, moments }) => ({ device, totalBytes, reserveBytes, moments }));
  }

  struckAt(): readonly Mark[] {
    return this.marks;
  }

  /** Every figure there is; `refusals` are those of the cards themselves, `tookMs` the scenario's time to the end. */
  figures(refusals: number, tookMs: number): Figures {
    const answered = this.calls.filter(({ end }) => end === 'answered').length;
    const figures: Record<string, number> = {
      requests: this.calls.length, answered, answeredShare: share(answered, this.calls.length),
      cancelled: this.calls.filter(({ end }) => end === 'cancelled').length,
      failed: this.calls.filter(({ end }) => end !== 'answered' && end !== 'cancelled' && end !== null).length,
      unfinished: this.calls.filter(({ end }) => end === null).length,
      overcommittedBytes: Math.max(0, this.overcommittedBytes), overshootBytes: Math.max(0, this.overshootBytes), oomRefusals: refusals, strangerRefusedBytes: this.strangerRefusedBytes,
      grants: 0, denials: 0, evictions: 0, yields: 0, loads: 0, spawns: 0, quarantines: 0, overshoots: 0, residues: 0, processesEnded: 0,
      reloadMs: Math.round(this.reloadMs), thrashes: 0,
      reloads: [...this.loadsOf.values()].reduce((sum, loads) => sum + loads - 1, 0),
      utilisation: this.area.capacity === 0 ? 0 : round(this.area.charged / this.area.capacity),
      tookMs: Math.round(tookMs),
    };
    for (const [name, count] of this.counts) figures[name] = count;
    for (const { end } of this.calls) if (end !== null && end !== 'answered' && end !== 'cancelled') figures[`failed.${end}`] = (figures[`failed.${end}`] ?? 0) + 1;
    for (const name of classes) addSpread(figures, `waitMs.${name}`, this.waits(name));
    addSpread(figures, 'waitMs', this.waits(null));
    for (const [name, times] of this.timesMs) addSpread(figures, name, times);
    return figures;
  }

  /** From asking to the first token, of those that got one. */
  private waits(wanted: RequestClass | null): number[] {
    return this.calls.flatMap(({ call, askedAtMs, begunAtMs }) => (begunAtMs === null || (wanted !== null && call.class !== wanted) ? [] : [begunAtMs - askedAtMs]));
  }

  private loaded(data: MachineEvent['data'], key: string, atMs: number): void {
    const model = text(data['model']);
    const hosted = `${text(data['generation'])} ${model}`;
    const here = `${hosted} ${text(data['device'])}`;
    const loads = (this.loadsIn.get(here) ?? 0) + 1;
    this.loadsIn.set(here, loads);
    if (loads > (this.loadsIn.get(hosted) ?? 0)) {
      this.loadsIn.set(hosted, loads);
      this.count('loads');
      if (this.loadsOf.has(model)) this.reloadMs += typeof data['loadMs'] === 'number' ? data['loadMs'] : 0;
      this.loadsOf.set(model, (this.loadsOf.get(model) ?? 0) + 1);
    }
    this.close('handOverMs.load', key, atMs, null);
  }

  /** The stage that began under `key` ends; one that never began took `otherwiseMs`, null: is not counted. */
  private close(stage: string, key: string, atMs: number, otherwiseMs: number | null): void {
    const beganAtMs = this.openedAtMs.get(key);
    this.openedAtMs.delete(key);
    const tookMs = beganAtMs === undefined ? otherwiseMs : atMs - beganAtMs;
    if (tookMs === null) return;
    const times = this.timesMs.get(stage) ?? [];
    times.push(tookMs);
    this.timesMs.set(stage, times);
  }

  private count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }
}

const chargedOf = (card: CardView): number => card.leasedBytes + card.floorBytes + card.residueBytes + card.returningBytes;

/** Moments of one millisecond are one; when there are too many, every other is forgotten. */
function addMoment(moments: CardMoment[], moment: CardMoment): void {
  if (moments.at(-1)?.atMs === moment.atMs) moments.pop();
  moments.push(moment);
  if (moments.length > momentsMax) moments.splice(0, moments.length, ...moments.filter((_, index) => index % 2 === 0));
}

function addSpread(figures: Record<string, number>, name: string, values: readonly number[]): void {
  if (values.length === 0) return;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (fraction: number): number => Math.round(sorted[Math.min(sorted.length - 1, Math.ceil(fraction * sorted.length) - 1)] ?? 0);
  figures[`${name}.p50`] = at(0.5);
  figures[`${name}.p95`] = at(0.95);
  figures[`${name}.p99`] = at(0.99);
  figures[`${name}.max`] = at(1);
}

const share = (part: number, whole: number): number => (whole === 0 ? 1 : round(part / whole));
const round = (value: number): number => Number(value.toFixed(4));
const text = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
