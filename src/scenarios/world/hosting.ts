/** What calls, doors and loads need of the process that hosts the model. */
import type { CommandAnswer } from '../../../broker/core/events.js';
import type { LeasePart } from '../../../protocol/index.js';
import type { Call, CallOutcome } from './context.js';
import type { HostedModel, Slice } from './hosted.js';
import type { EngineKnobs } from './knobs.js';
import type { SimProcess } from './process.js';

type Base = Pick<SimProcess, 'world' | 'generation' | 'devices' | 'behaviour' | 'alive' | 'say' | 'later'>;

export interface Hosting extends Base {
  readonly models: ReadonlyMap<string, HostedModel>;
  readonly asked: Map<number, HostedModel>;
  readonly engine: EngineKnobs;
  readonly isEnding: boolean;
  readonly stopsLoads: boolean;
  end(how: string): void;
  nextRequest(): number;
  nextGang(): string;
  byLease(lease: string): HostedModel | null;
  pump(model: HostedModel): void;
  askForRoom(model: HostedModel): void;
  /** A broker is there, and has heard what is held: it may be asked. */
  readonly mayAsk: boolean;
  moveIfDrained(model: HostedModel): void;
  takeBackExtension(model: HostedModel): void;
  endCall(model: HostedModel, call: Call, outcome: CallOutcome, code?: string | null): void;
  allocate(model: HostedModel, slice: Slice, bytes: number): boolean;
  free(slice: Slice, bytes: number): void;
  /** Sets what the model has of the machine's memory. False: there was no room, and the process is killed for it. */
  takeMemory(model: HostedModel, toBytes: number): boolean;
  /** Keeps so much more in nobody's name. */
  grow(bytes: number): void;
  /** Gives back what it has grown by; false: it has not, or will not. */
  shrink(bytes: number): boolean;
  takeResidual(): void;
  /** What it holds on one card. */
  reportSlice(model: HostedModel, slice: Slice, parts: readonly LeasePart[] | null, loadMs: number | null): void;
  /** On all of its cards; with its parts as they are when `parts`. */
  reportResidency(model: HostedModel, parts: boolean, loadMs: number | null): void;
  reportUse(model: HostedModel): void;
  answer(command: number | null, answer: CommandAnswer): void;
}
