/** The broker's side of the NVML helper: keeps one alive, and lets it rest longer after each failure. */
import { monotonicUs } from '../../protocol/node/clock.js';
import { isShortage } from '../supervisor/process-table.js';
import { within } from './deadline.js';
import { silentLog, type DeviceLog } from './device-log.js';
import { HelperProcess, type HelperCommand, type HelperOutcome, type Question } from './nvml-helper-process.js';

export interface NvmlClientOptions {
  readonly helper: HelperCommand;
  /** From the helper's start to its first word; opening the driver can take seconds when nothing else keeps it open. */
  readonly startTimeoutMs: number;
  readonly backoffFirstMs: number;
  readonly backoffLastMs: number;
  readonly nowUs?: () => number;
  readonly log?: DeviceLog;
}

/** Helpers that outlive their SIGKILL (stuck in the driver) before no more are started. */
const stuckHelpersMax = 3;

type State =
  | { readonly phase: 'idle' }
  | { readonly phase: 'running'; readonly process: HelperProcess }
  /** Nothing is started before `untilUs`. */
  | { readonly phase: 'resting'; readonly untilUs: number; readonly reason: string }
  | { readonly phase: 'closed' };

export class NvmlClient {
  readonly #options: NvmlClientOptions;
  readonly #nowUs: () => number;
  readonly #log: DeviceLog;
  readonly #past = new Set<HelperProcess>();
  #state: State = { phase: 'idle' };
  #failures = 0;

  constructor(options: NvmlClientOptions) {
    this.#options = options;
    this.#nowUs = options.nowUs ?? monotonicUs;
    this.#log = options.log ?? silentLog;
  }

  /** Waits until a helper has opened the library. `missing` says why there is none now. Bounded by startTimeoutMs. */
  async open(): Promise<HelperOutcome> {
    const process = this.#processNow();
    if ('kind' in process) return process;
    const outcome = await process.opened;
    if (outcome.kind === 'answered' && outcome.message.say === 'unavailable') {
      await this.#retire(process, outcome.message.reason, true);
    }
    return outcome;
  }

  /** One question. Waits for a starting helper too, but never longer than `timeoutMs`; a start is not killed for it. */
  async ask(question: Question, timeoutMs: number): Promise<HelperOutcome> {
    const opened = await within(timeoutMs, this.open());
    if (opened === null) return { kind: 'missing', reading: 'timed_out', reason: 'the NVML helper is still starting' };
    if (opened.kind === 'missing') return opened;
    if (opened.message.say === 'unavailable') return { kind: 'missing', reading: 'failed', reason: opened.message.reason };
    const process = this.#processNow();
    if ('kind' in process) return process;
    const outcome = await process.ask(question, timeoutMs);
    if (outcome.kind === 'answered') this.#failures = 0;
    return outcome;
  }

  async close(): Promise<void> {
    const state = this.#state;
    this.#state = { phase: 'closed' };
    const processes = [...this.#past, ...(state.phase === 'running' ? [state.process] : [])];
    await Promise.all(processes.map((process) => process.close(2_000)));
  }

  #processNow(): HelperProcess | Extract<HelperOutcome, { kind: 'missing' }> {
    const state = this.#state;
    if (state.phase === 'running') return state.process;
    if (state.phase === 'closed') return { kind: 'missing', reading: 'failed', reason: 'closed' };
    if (state.phase === 'resting' && this.#nowUs() < state.untilUs) return { kind: 'missing', reading: 'failed', reason: state.reason };
    for (const process of this.#past) if (!process.alive) this.#past.delete(process);
    if (this.#past.size >= stuckHelpersMax) {
      return { kind: 'missing', reading: 'failed', reason: `${this.#past.size} NVML helpers are stuck in the driver and survive SIGKILL` };
    }
    return this.#start();
  }

  #start(): HelperProcess | Extract<HelperOutcome, { kind: 'missing' }> {
    try {
      const process: HelperProcess = new HelperProcess(this.#options.helper, this.#options.startTimeoutMs, (reason) => void this.#retire(process, reason, false));
      this.#state = { phase: 'running', process };
      return process;
    } catch (error) {
      // Out of memory a spawn throws; most other refusals the helper tells of itself.
      if (!isShortage(error)) throw error;
      return { kind: 'missing', reading: 'failed', reason: `the NVML helper could not be started: ${String(error)}` };
    }
  }

  async #retire(process: HelperProcess, reason: string, unavailable: boolean): Promise<void> {
    if (this.#state.phase !== 'running' || this.#state.process !== process) return;
    const { backoffFirstMs, backoffLastMs } = this.#options;
    const restMs = Math.min(backoffLastMs, backoffFirstMs * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    this.#past.add(process);
    this.#state = { phase: 'resting', untilUs: this.#nowUs() + restMs * 1_000, reason };
    this.#log(unavailable ? 'info' : 'warn', 'the NVML helper is gone', { reason, restMs, failures: this.#failures });
    if (unavailable) await process.close(2_000);
  }
}
