/** llama.cpp as it runs in this process, what it was started with, and what may be said about that beforehand. */
import type { EngineContext, VisibleCard } from '../runtime/engine.js';
import type { FloorMeter } from './floor-meter.js';
import type { Library } from './library.js';
import type { NativeLog } from './native-log.js';
import type { Llama } from './open-llama.js';
import type { ProbeBackend, ProbeOptions } from './probe.js';
import type { Vetter, VetOptions } from './vet.js';
import type { Verdicts } from './verdicts.js';

export interface StartedLlama {
  readonly library: Library;
  readonly llama: Llama;
  readonly backend: ProbeBackend | 'cpu';
  /** Where this process's bytes are: a real card with a backend that works, a simulated one, or none. */
  readonly card: VisibleCard | null;
  readonly threads: number;
  readonly log: NativeLog;
  readonly context: EngineContext;
  readonly verdicts: Verdicts;
  readonly vetter: Vetter;
  readonly floors: readonly { readonly device: string; readonly bytes: number }[];
  /** Null where nothing was measured to begin with. */
  readonly meter: FloorMeter | null;
}

/** What a start has before it knows where it will run. */
export type StartBase = Omit<StartedLlama, 'llama' | 'backend' | 'card' | 'floors' | 'meter'>;

export interface StartOptions extends ProbeOptions, VetOptions {
  /** A private folder for what children found out; null: it is asked for again at each start. */
  readonly verdictFolder?: string | null;
  /** What becomes of a start with a real card on which llama.cpp does not compute. Default `refuse`: it fails (B22). */
  readonly cpuFallback?: 'allow' | 'refuse';
  /** In place of node-llama-cpp. */
  readonly library?: Library;
}
