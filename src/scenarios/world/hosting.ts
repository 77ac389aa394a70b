/** What calls, doors and loads need of the process that hosts the model. */
import type { CommandAnswer } from '../../../broker/core/events.js';
import type { LeasePart } from '../../../protocol/index.js';
import type { Call, CallOutcome } from './context.js';
import type { HostedModel } from './hosted.js';
import type { EngineKnobs } from './knobs.js';
import type { SimProcess } from './process.js';

type Base = Pick<SimProcess, 'world' | 'generation' | 'device' | 'behaviour' | 'alive' | 'say' | 'later'>;

export interface Hosting extends Base {
  readonly models: ReadonlyMap<string, HostedModel>;
  readonly asked: Map<number, HostedModel>;
  readonly engine: EngineKnobs;
  readonly isEnding: boolean;
  readonly stopsLoads: boolean;
  end(how: string): void;
  nextRequest(): number;
  byLease(lease: string): HostedModel | null;
  pump(model: HostedModel): void;
  askForRoom(model: HostedModel): void;
  /** A broker is there, and has heard what is held: it may be asked. */
  readonly mayAsk: boolean;
  moveIfDrained(model: HostedModel): void;
  takeBackExtension(model: HostedModel): void;
  endCall(model: HostedModel, call: Call, outcome: CallOutcome): void;
  allocate(model: HostedModel, bytes: number): boolean;
  free(model: HostedModel, bytes: number): void;
  takeResidual(): void;
  reportResidency(model: HostedModel, lease: string, parts: readonly LeasePart[] | null, loadMs: number | null): void;
  reportUse(model: HostedModel): void;
  answer(command: number | null, answer: CommandAnswer): void;
}
