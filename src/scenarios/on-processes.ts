/**
 * A scenario on real processes: a broker of its own with simulated cards,
 * simulated workers, sockets and signals in earnest. Its times can be
 * shortened (`speed`); what it does is not the same twice.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LeaseholdError, defaultLimits } from '../../protocol/index.js';
import { packagePath } from '../config/schema-file.js';
import { openOrchestrator, type SimulatedCardInHand } from '../orchestrator/index.js';
import type { EngineOptions, ModelOptions, OrchestratorOptions } from '../orchestrator/options.js';
import type { LedgerState, Orchestrator } from '../orchestrator/types.js';
import type { AskedCall, AskedCallback, Machine } from './machine.js';
import type { Played } from './on-clock.js';
import { Play } from './play.js';
import { Recorder } from './recorder.js';
import type { FaultAct, LieName, Scenario, ScenarioEngine, ScenarioModel } from './scenario.js';
import { Prng } from './world/prng.js';

const lookEveryMs = 50;
/** Tokens of a simulated answer: enough to be stopped in the middle. */
const answerTokens = 8;
/** Beyond the pids of any Linux: nobody of ours. */
const strangerPid = 2 ** 22 + 1;
/** Faults that cannot be had of a real machine on demand. */
const clockAlone: readonly FaultAct['kind'][] = ['suspend'];

export interface ProcessesOptions {
  /** All times of the scenario are divided by it. */
  readonly speed: number;
  /** Real engines instead of simulated workers: the models' `source`, real sizes and times; faults by signals alone. */
  readonly engines: boolean;
  readonly signal: AbortSignal;
}

/** Rejects with `input_invalid` for a scenario that only the clock can play, before anything is started. */
export async function playOnProcesses(scenario: Scenario, options: ProcessesOptions): Promise<Played> {
  refuseWhatNeedsTheClock(scenario, options.engines);
  const folder = await mkdtemp(join(tmpdir(), 'lh-stress-'));
  const recorder = new Recorder();
  const cards: SimulatedCardInHand[] = [];
  const orchestrator = await openOrchestrator({ ...orchestratorOptions(scenario, options), stateFolder: join(folder, 'state'), broker: 'own' }, (owned) => { cards.push(...owned); });
  const machine = new ProcessesMachine(scenario, orchestrator, recorder, { speed: options.speed, cards });
  try {
    await machine.play(options.signal);
    const { simulatedCards } = await orchestrator.ledger();
    return { recorder, refusals: simulatedCards.reduce((sum, { oomRefusals }) => sum + oomRefusals, 0), tookMs: machine.nowMs() };
  } finally {
    await orchestrator.close();
    await machine.followed;
    await rm(folder, { recursive: true, force: true });
  }
}

class ProcessesMachine implements Machine {
  /** Settles when the events have ended. */
  followed: Promise<void> = Promise.resolve();
  private readonly startedMs = performance.now();
  private readonly random: Prng;
  private readonly running = new Set<AbortController>();
  private strangers = 0;
  private latest: LedgerState | null = null;

  private readonly speed: number;

  constructor(private readonly scenario: Scenario, private readonly orchestrator: Orchestrator, private readonly recorder: Recorder, private readonly setup: { readonly speed: number; readonly cards: readonly SimulatedCardInHand[] }) {
    this.speed = setup.speed;
    this.random = new Prng(scenario.seed, 'strikes');
  }

  async play(signal: AbortSignal): Promise<void> {
    const play = new Play(this.scenario, this, this.recorder);
    this.followed = this.follow();
    play.start();
    const ownEnd = (): boolean => signal.aborted || (this.nowMs() > this.scenario.durationMs && play.done);
    while (!ownEnd()) {
      this.latest = await this.orchestrator.ledger();
      this.recorder.saw(this.named(this.latest), this.nowMs());
      // The very moment of a grant cannot be caught from outside; without an overshoot every moment is as good.
      if ((this.latest.counters['overshoots'] ?? 0) === 0) this.recorder.granted(this.latest);
      await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
    }
    for (const running of this.running) running.abort();
    signal.throwIfAborted();
  }

  nowMs(): number {
    return (performance.now() - this.startedMs) * this.speed;
  }

  after(delayMs: number, run: () => void): void {
    // What was still to come holds nobody once the play is over, or was stopped.
    setTimeout(run, delayMs / this.speed).unref();
  }

  ask(call: AskedCall, callback: AskedCallback): () => void {
    const stopping = new AbortController();
    this.running.add(stopping);
    const answer = async (): Promise<string> => {
      try {
        const generation = this.orchestrator.generate(call.model, { prompt: 'Once upon a time' }, { class: call.class, deadlineMs: Math.max(1, Math.round(call.deadlineMs / this.speed)), maxTokens: answerTokens, signal: stopping.signal });
        for await (const token of generation) if (token.text !== '') callback.begun();
        await generation.result();
        return 'answered';
      } catch (error) {
        return stopping.signal.aborted ? 'cancelled' : LeaseholdError.from(error).code;
      } finally {
        this.running.delete(stopping);
      }
    };
    void answer().then((end) => { callback.ended(end); });
    return () => { stopping.abort(); };
  }

  strike(act: FaultAct): void {
    switch (act.kind) {
      case 'kill':
        if (act.whom === 'worker') this.signalOne('SIGKILL');
        else pickFrom(this.random, [...this.running])?.abort();
        return;
      case 'stop': {
        const pid = this.signalOne('SIGSTOP');
        if (pid !== null) this.after(act.forMs, () => { signalIfAlive(pid, 'SIGCONT'); });
        return;
      }
      case 'squat':
        this.squat(act.bytes, act.device, act.forMs);
        return;
      case 'stall': {
        // The broker's loop is this process's: it is kept busy in earnest.
        const untilMs = performance.now() + act.forMs / this.speed;
        while (performance.now() < untilMs);
        return;
      }
      case 'probe':
        this.blind(act, act.how === 'hangs' ? { reading: 'timed_out', reason: 'no answer' } : { reading: 'failed', reason: 'exit code 9' });
        return;
      case 'lose':
        this.blind(act, { reading: 'unknown', reason: 'it has fallen off the bus', lost: true });
        return;
      case 'suspend':
        throw new RangeError(`${act.kind} needs the clock`);
    }
  }

  ledger(): LedgerState | null {
    return this.latest;
  }

  refusals(): number {
    return this.latest?.simulatedCards.reduce((sum, { oomRefusals }) => sum + oomRefusals, 0) ?? 0;
  }

  private async follow(): Promise<void> {
    const bootUs = Number(process.hrtime.bigint() / 1_000n) - (performance.now() - this.startedMs) * 1_000;
    for await (const { name, atUs, data } of this.orchestrator.events()) {
      const model = typeof data['model'] === 'string' ? { model: this.nameOf(data['model']) } : {};
      this.recorder.heard({ name, atMs: ((atUs - bootUs) / 1_000) * this.speed, data: { ...data, ...model } });
    }
  }

  /** The card tells nothing for so long, or is gone. */
  private blind({ device, forMs }: { readonly device: number; readonly forMs: number }, fault: Parameters<SimulatedCardInHand['setFault']>[0]): void {
    const card = this.setup.cards[device];
    card?.setFault(fault);
    this.after(forMs, () => { card?.setFault(null); });
  }

  private named(ledger: LedgerState): LedgerState {
    return { ...ledger, leases: ledger.leases.map((lease) => ({ ...lease, model: this.nameOf(lease.model) })) };
  }

  private nameOf(key: string): string {
    return this.orchestrator.models.find((model) => model.key === key)?.name ?? key;
  }

  private signalOne(signal: NodeJS.Signals): number | null {
    const pid = pickFrom(this.random, (this.latest?.workers ?? []).flatMap((worker) => (worker.pid === null ? [] : [worker.pid])));
    return pid !== null && signalIfAlive(pid, signal) ? pid : null;
  }

  /** A program that is not ours takes what is free of what it wants, and leaves. */
  private squat(bytes: number, device: number, forMs: number): void {
    const card = this.setup.cards[device];
    if (card === undefined) return;
    const pid = strangerPid + this.strangers++;
    const takenBytes = Math.min(bytes, Math.max(0, card.description.totalBytes - card.usedBytes));
    card.setForeign(pid, takenBytes);
    this.recorder.refusedStranger(bytes - takenBytes);
    this.after(forMs, () => { card.setForeign(pid, 0); });
  }
}

function signalIfAlive(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

function pickFrom<T>(random: Prng, items: readonly T[]): T | null {
  return items.length === 0 ? null : random.pick(items);
}

function refuseWhatNeedsTheClock(scenario: Scenario, engines: boolean): void {
  const refuse = (field: string, reason: string): never => { throw new LeaseholdError('input_invalid', { field, reason }); };
  for (const [index, fault] of scenario.faults.entries()) {
    const field = `faults[${index}]`;
    if (fault.when !== null) {
      if (clockAlone.includes(fault.act.kind)) refuse(field, `${fault.act.kind} can be played on the clock alone; leave --on out`);
      continue;
    }
    if (engines && Object.keys(fault.lies).length > 0) refuse(field, 'an engine does not lie on demand; play it with --on processes');
  }
  for (const [name, { source }] of Object.entries(scenario.models)) if (engines && source === null) refuse(`models.${name}`, 'source is missing: what the engine is to load');
}

function orchestratorOptions(scenario: Scenario, { speed, engines }: ProcessesOptions): OrchestratorOptions {
  const lasting = scenario.faults.filter((fault) => fault.when === null);
  const lagMs = Math.round(Math.max(0, ...lasting.map(({ lagMs: lag }) => lag)) / speed);
  const lies = Object.assign({}, ...lasting.map(({ lies: some }) => some)) as Partial<Record<LieName, number>>;
  const draws = new Prng(scenario.seed, 'behaviour');
  const models = Object.entries(scenario.models).map(([name, model]) => [name, engines ? realModel(model) : simulatedModel(name, model, speed, lies, draws)] as const);
  const reserves = [...new Set(scenario.devices.map(({ reserveBytes }) => reserveBytes))];
  if (reserves.length > 1) throw new LeaseholdError('input_invalid', { field: 'devices', reason: 'on processes every card keeps the same reserve' });
  const yields = [...new Set(scenario.devices.map(({ yieldFreeBytes }) => yieldFreeBytes))];
  if (yields.length > 1) throw new LeaseholdError('input_invalid', { field: 'devices', reason: 'on processes every card gives way to strangers alike' });
  return {
    models: Object.fromEntries(models),
    devices: scenario.devices.map(({ totalBytes, floorBytes, confirms }) => `sim:${totalBytes},floor=${floorBytes},lag=${lagMs}ms${confirms === 'process' ? '' : ',blind'}`),
    reserveBytes: reserves[0] ?? 0,
    yieldFreeBytes: yields[0] ?? null,
    engines: engines ? [] : Object.entries(scenario.engines).map(([name, engine]) => engineOptions(name, engine, speed, lies, draws)),
    limits: { ...defaultLimits, ...scenario.limits },
    allowLedgerOnly: scenario.devices.some(({ confirms }) => confirms === 'none'),
  };
}

function realModel(model: ScenarioModel): ModelOptions {
  return { source: model.source ?? '', cards: model.shares.length, parallel: model.parallel, class: model.class, ttlMs: model.ttlMs, pinned: model.pinned };
}

function simulatedModel(name: string, model: ScenarioModel, speed: number, lies: Partial<Record<LieName, number>>, draws: Prng): ModelOptions {
  const contextTokens = 2_048;
  const script = {
    weightsBytes: model.weightsBytes, actualWeightsBytes: model.trueWeightsBytes, contextBytesPerToken: Math.ceil(model.contextBytes / contextTokens), loadPeakBytes: model.peakBytes,
    loadMs: model.loadMs / speed, parkMs: model.moveMs / speed, unloadMs: model.moveMs / speed, resumeMs: model.loadMs / 8 / speed, parkable: model.parkable,
    tokensPerSecond: Math.max(1, (answerTokens * 1_000 * speed) / Math.max(1, model.callMs)), // Two models that are alike in everything would be one.
    text: `I am ${name}, and I was asked. `, textTimes: 4,
    overAllocateBytes: draws.chance(lies.takesMore ?? 0) ? Math.floor(model.weightsBytes * 0.3) : 0,
    unloadKeepsFraction: draws.chance(lies.freesNothing ?? 0) ? 1 : draws.chance(lies.freesLess ?? 0) ? 0.6 : 0,
    ...(model.shares.length === 1 ? {} : { tensorSplit: model.shares.join(',') }),
    failKeepsFraction: draws.chance(lies.leaksOnFailure ?? 0) ? 0.7 : 0,
    freesLateMs: draws.chance(lies.acknowledgesEarly ?? 0) ? draws.int(50, 3_000) / speed : 0,
    answersLateMs: draws.chance(lies.answersLate ?? 0) ? draws.int(100, 8_000) / speed : 0,
    faults: [
      ...(model.loadFails === 0 ? [] : [{ at: 'load', how: 'throw', times: Math.max(1, Math.round(model.loadFails * 3)) }]),
      ...(draws.chance(lies.ignores ?? 0) ? [{ at: 'park', how: 'hang' }, { at: 'unload', how: 'hang' }] : []),
    ],
  };
  return {
    engine: model.engine, source: `sim:${JSON.stringify(script)}`, contextTokens, cards: model.shares.length, parallel: model.parallel, class: model.class,
    ttlMs: model.ttlMs === null ? null : Math.max(1, Math.round(model.ttlMs / speed)), pinned: model.pinned,
  };
}

function engineOptions(name: string, engine: ScenarioEngine, speed: number, lies: Partial<Record<LieName, number>>, draws: Prng): EngineOptions {
  const script = {
    name, startMs: engine.spawnMs / speed, floorBytes: engine.floorBytes, partial: engine.partial, profilesFreeMemory: engine.profilesFreeMemory,
    ignoreSigterm: draws.chance(lies.ignoresSigterm ?? 0), answersTwice: draws.chance(lies.answersTwice ?? 0), answersWrong: draws.chance(lies.answersWrong ?? 0),
  };
  return {
    name, modelsPerWorker: engine.modelsPerWorker, command: process.execPath, args: [packagePath('dist', 'workers', 'simulated', 'main.js')], env: { LEASEHOLD_SIMULATED: JSON.stringify(script) },
  };
}
