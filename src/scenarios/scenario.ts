/** A stress scenario as it is run: everything checked, in bytes and milliseconds, with nothing left out. */
import type { Limits, RequestClass } from '../../protocol/index.js';

export interface Scenario {
  readonly name: string;
  readonly about: string;
  readonly seed: number;
  readonly durationMs: number;
  readonly devices: readonly ScenarioDevice[];
  readonly engines: Readonly<Record<string, ScenarioEngine>>;
  readonly models: Readonly<Record<string, ScenarioModel>>;
  readonly arrivals: readonly Arrivals[];
  readonly faults: readonly ScenarioFault[];
  readonly limits: Partial<Limits>;
  readonly expect: Readonly<Record<string, Bound>>;
}

export interface ScenarioDevice {
  readonly totalBytes: number;
  readonly reserveBytes: number;
  /** Made free for strangers that take more; null: nothing is. */
  readonly yieldFreeBytes: number | null;
  readonly floorBytes: number;
  readonly confirms: 'process' | 'total' | 'none';
}

export interface ScenarioEngine {
  readonly modelsPerWorker: number;
  readonly floorBytes: number;
  readonly spawnMs: number;
  readonly partial: boolean;
  readonly profilesFreeMemory: boolean;
}

export interface ScenarioModel {
  readonly engine: string;
  /** For a run on engines; null: it has none. */
  readonly source: string | null;
  readonly weightsBytes: number;
  readonly trueWeightsBytes: number;
  readonly contextBytes: number;
  /** 0: never above the sum. */
  readonly peakBytes: number;
  readonly loadMs: number;
  readonly moveMs: number;
  readonly callMs: number;
  readonly parallel: number;
  /** Of its bytes, how much is on each of its cards; together 1. */
  readonly shares: readonly number[];
  readonly parkable: boolean;
  readonly class: RequestClass;
  readonly ttlMs: number | null;
  readonly pinned: boolean;
  readonly loadFails: number;
}

export interface Arrivals {
  readonly models: readonly string[];
  readonly pick: 'turns' | 'zipf' | 'evenly';
  readonly exponent: number;
  readonly how: { readonly kind: 'every'; readonly meanMs: number } | { readonly kind: 'callers'; readonly count: number; readonly thinkMs: number } | { readonly kind: 'atOnce'; readonly count: number };
  readonly fromMs: number;
  readonly untilMs: number;
  /** Null: each model's own. */
  readonly class: RequestClass | null;
  readonly deadlineMs: number;
  readonly patienceMs: number | null;
}

export const lieNames = ['acknowledgesEarly', 'freesNothing', 'freesLess', 'takesMore', 'ignores', 'answersLate', 'answersTwice', 'answersWrong', 'ignoresSigterm', 'leaksOnFailure'] as const;
export type LieName = (typeof lieNames)[number];

export type FaultAct =
  | { readonly kind: 'kill'; readonly whom: 'worker' | 'client' }
  | { readonly kind: 'stop'; readonly forMs: number }
  | { readonly kind: 'squat'; readonly bytes: number; readonly device: number; readonly forMs: number }
  | { readonly kind: 'probe'; readonly how: 'fails' | 'hangs'; readonly device: number; readonly forMs: number }
  | { readonly kind: 'lose'; readonly device: number; readonly forMs: number }
  | { readonly kind: 'suspend'; readonly forMs: number }
  | { readonly kind: 'stall'; readonly forMs: number };

export type ScenarioFault =
  | { readonly when: { readonly kind: 'at' | 'every'; readonly ms: number }; readonly act: FaultAct }
  /** From the beginning, for good. */
  | { readonly when: null; readonly lagMs: number; readonly lies: Readonly<Partial<Record<LieName, number>>> };

export interface Bound {
  readonly least?: number;
  readonly most?: number;
  readonly is?: number;
}
