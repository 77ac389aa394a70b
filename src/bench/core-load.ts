/** Ten thousand leases on eight cards, made and driven by events alone, as the `core` benchmark needs them. */
import { classPolicies, defaultLimits, type LeasePart, type ModelPolicy } from '../../protocol/index.js';
import { createCore, step, type Core, type Effect } from '../../broker/core/index.js';
import type { UntimedEvent } from '../../broker/shell/index.js';

const policy: ModelPolicy = { ttlMs: null, pinned: false, exclusive: false };
const partsOf = (bytes: number): LeasePart[] => [{ name: 'weights', kind: 'weights', bytes, upFront: true }];

export interface HeldByLoad {
  readonly lease: string;
  readonly model: string;
  readonly device: string;
  readonly generation: string;
  readonly bytes: number;
}

export interface LoadShape {
  readonly cards: number;
  readonly holdersPerCard: number;
  readonly cardBytes: number;
}

/** A core under load. Time is a counter: one microsecond an event, so that nothing ages by itself. */
export class CoreLoad {
  readonly core: Core;
  readonly devices: readonly string[];
  readonly held: HeldByLoad[] = [];
  readonly #shape: LoadShape;
  /** What each holder has on its card, as a driver would tell. */
  readonly #usedBytes = new Map<string, number>();
  #nowUs = 1;
  #requests = 0;
  #seq = 0;

  constructor(shape: LoadShape) {
    this.#shape = shape;
    this.devices = Array.from({ length: shape.cards }, (_, index) => `SIM-bench-${String(index)}`);
    const limits = { ...defaultLimits, leasesMax: 1_000_000 };
    this.core = createCore({ bootId: 'bench', startedAtUs: 0, limits, classPolicies, engines: [], allowLedgerOnly: false });
    for (const device of this.devices) {
      this.take({ type: 'card_added', device, name: device, kind: 'simulated', totalBytes: shape.cardBytes, reserveBytes: 0, confirms: 'process', floorBytes: 0 });
      for (const generation of this.#holdersOf(device)) {
        this.#usedBytes.set(generation, 0);
        this.take({ type: 'session_opened', generation, role: 'holder', name: generation });
      }
      this.sample(device);
    }
  }

  take(event: UntimedEvent): Effect[] {
    this.#nowUs += 1;
    return step(this.core, { ...event, atUs: this.#nowUs });
  }

  /** Lets a second pass, as the core sees it: less than a stall, so that all of it counts. */
  passSecond(): void {
    this.#nowUs += 999_999;
    this.take({ type: 'ticked' });
  }

  /** One request; returns what it led to. `pick` chooses the holder. */
  ask(device: string, bytes: number, pick: number): { readonly effects: Effect[]; readonly generation: string; readonly model: string } {
    const holders = this.#holdersOf(device);
    const generation = holders[pick % holders.length] ?? '';
    this.#requests += 1;
    const model = `model-${String(this.#requests)}`;
    const effects = this.take({
      type: 'budget_requested', generation, request: this.#requests, model, device, lease: null, parts: partsOf(bytes), peakBytes: 0, class: 'normal',
      deadlineMs: 600_000, ageMs: 0, parkable: false, profilesFreeMemory: false, source: 'declared', policy, gang: null,
    });
    return { effects, generation, model };
  }

  /** Confirms the grant and makes it resident. */
  settle(held: HeldByLoad): void {
    this.take({ type: 'load_begun', generation: held.generation, lease: held.lease });
    this.#usedBytes.set(held.generation, (this.#usedBytes.get(held.generation) ?? 0) + held.bytes);
    this.report(held);
    this.held.push(held);
  }

  report(held: HeldByLoad): void {
    this.#seq += 1;
    this.take({
      type: 'residency_reported', generation: held.generation, request: this.#seq, lease: held.lease, model: held.model, seq: this.#seq,
      state: 'resident', residentBytes: held.bytes, hostBytes: 0, parts: partsOf(held.bytes), loadMs: 100 + (this.#seq % 900),
    });
  }

  release(held: HeldByLoad): void {
    this.#usedBytes.set(held.generation, (this.#usedBytes.get(held.generation) ?? 0) - held.bytes);
    this.take({ type: 'lease_released', generation: held.generation, lease: held.lease, cause: 'unloaded', failure: null });
  }

  sample(device: string): void {
    const processes = this.#holdersOf(device).map((generation) => ({ generation, usedBytes: this.#usedBytes.get(generation) ?? 0 }));
    const usedBytes = processes.reduce((sum, process) => sum + process.usedBytes, 0);
    this.take({ type: 'sampled', device, takenAtUs: this.#nowUs + 1, usedBytes, totalBytes: this.#shape.cardBytes, truth: 'simulated', processes });
  }

  /** The lease that effects granted, or null. */
  static granted(effects: readonly Effect[]): string | null {
    const grant = effects.find((effect) => effect.type === 'grant');
    return grant === undefined ? null : grant.lease;
  }

  #holdersOf(device: string): string[] {
    return Array.from({ length: this.#shape.holdersPerCard }, (_, index) => `bench-s${String(this.devices.indexOf(device) * 1_000 + index)}`);
  }
}
