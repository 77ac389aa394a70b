/** A process that hosts models: leases, residency, calls and doors, as the real runtime handles them. */
import type { Effect } from '../../../broker/core/effects.js';
import type { CommandAnswer } from '../../../broker/core/events.js';
import type { LeasePart } from '../../../protocol/index.js';
import { refuse, sendAsking, voidAsking } from './asking.js';
import { endCall, noteNewCall, pump, takeBackExtension } from './calls.js';
import { noLag } from './card.js';
import type { Call, CallOutcome, HeldState, WorldContext } from './context.js';
import { moveIfDrained, obeyCancel, obeyMove, voidDoor } from './doors.js';
import type { Behaviour } from './faults.js';
import { bytesOn, endAllCalls, hostedModel, stateOf, type HostedModel, type Slice } from './hosted.js';
import type { EngineKnobs, ModelKnobs } from './knobs.js';
import type { Hosting } from './hosting.js';
import { askForRoom, loadFromGrant, obeyRecall, voidGrant } from './loading.js';
import { obeyTrim } from './memory.js';
import { SimProcess } from './process.js';

export abstract class ModelHost extends SimProcess implements Hosting {
  readonly models = new Map<string, HostedModel>();
  /** Requests to the broker that have no final answer yet. */
  readonly asked = new Map<number, HostedModel>();
  /** Back with a broker that has not heard everything yet. */
  protected isReturning = false;
  private requests = 0;
  private gangs = 0;
  private reports = 0;
  private residualTaken = false;
  /** The cards of which it has told that. */
  protected readonly residualTold = new Set<string>();
  /** How often it has come back to a broker. */
  private returned = 0;
  private grownBytes = 0;

  constructor(world: WorldContext, generation: string, devices: readonly string[], behaviour: Behaviour, readonly engine: EngineKnobs) {
    super(world, generation, devices, behaviour);
  }

  /** Says that its end is near: no new calls are taken. */
  abstract readonly isEnding: boolean;
  /** Its engine can be told to stop a load; one that cannot is busy with it. */
  abstract readonly stopsLoads: boolean;
  abstract end(how: string): void;

  get mayAsk(): boolean {
    return this.isAttached && !this.isReturning;
  }

  nextRequest(): number {
    return ++this.requests;
  }

  /** A name is used once, whatever the connection. */
  nextGang(): string {
    return `gang-${++this.gangs}`;
  }

  model(spec: ModelKnobs): HostedModel {
    const name = spec.copy === undefined ? spec.key : `${spec.key}#${spec.copy}`;
    let model = this.models.get(name);
    if (model === undefined) this.models.set(name, (model = hostedModel(spec, this.devices)));
    return model;
  }

  byLease(lease: string): HostedModel | null {
    for (const model of this.models.values()) if (model.slices.some((slice) => slice.lease === lease)) return model;
    return null;
  }

  takeCall(call: Call): void {
    const model = this.model(call.model);
    call.arrivedAtUs = this.world.scheduler.coreUs;
    model.queue.push(call);
    noteNewCall(this, model, call);
    this.pump(model);
    this.reportUse(model);
  }

  /** Begins what may begin, asks for room where that is what is missing, moves what has drained. */
  pump(model: HostedModel): void {
    pump(this, model);
  }

  askForRoom(model: HostedModel): void {
    askForRoom(this, model);
  }

  moveIfDrained(model: HostedModel): void {
    moveIfDrained(this, model);
  }

  takeBackExtension(model: HostedModel): void {
    takeBackExtension(this, model);
  }

  endCall(model: HostedModel, call: Call, outcome: CallOutcome, code: string | null = null): void {
    endCall(this, model, call, outcome, code);
  }

  allocate(model: HostedModel, slice: Slice, bytes: number): boolean {
    if (bytes <= 0) return true;
    const { device, lease } = slice;
    if (!this.world.card(device).allocate(this.generation, bytes)) {
      this.world.counters.ooms++;
      this.world.onOom.tell?.({
        device, generation: this.generation, model: model.spec.key, lease, wantedBytes: bytes, heldBytes: slice.takenBytes, chargedBytes: slice.chargedBytes,
      });
      return false;
    }
    slice.takenBytes += bytes;
    return true;
  }

  free(slice: Slice, bytes: number): void {
    const freed = Math.min(bytes, slice.takenBytes);
    slice.takenBytes -= freed;
    this.world.card(slice.device).free(this.generation, freed, this.world.lag('free'));
  }

  takeMemory(model: HostedModel, toBytes: number): boolean {
    const { memory } = this.world;
    if (memory === null) return true;
    const moreBytes = toBytes - model.memoryBytes;
    if (moreBytes > 0 && !memory.allocate(this.generation, moreBytes)) {
      this.world.onMemoryShort(this.generation, moreBytes);
      this.end('killed: out of memory');
      return false;
    }
    if (moreBytes < 0) memory.free(this.generation, -moreBytes, this.world.memoryLag());
    model.memoryBytes = toBytes;
    return true;
  }

  grow(bytes: number): void {
    if (bytes > 0 && this.world.memory?.allocate(this.generation, bytes) === true) this.grownBytes += bytes;
  }

  shrink(bytes: number): boolean {
    if (this.behaviour.keepsGrowth || this.grownBytes < bytes) return false;
    this.world.memory?.free(this.generation, this.grownBytes, noLag);
    this.grownBytes = 0;
    return true;
  }

  /** The first load of a process takes library workspaces that stay until its end. */
  takeResidual(): void {
    if (this.residualTaken) return;
    this.residualTaken = true;
    const bytes = this.behaviour.residualBytes;
    const floorBytes = this.engine.floorBytes;
    for (const device of this.devices) {
      if (bytes > 0 && this.world.card(device).allocate(this.generation, bytes) && this.world.random.chance(0.5)) {
        this.residualTold.add(device);
        this.say({ type: 'floor_measured', device, bytes: floorBytes + bytes });
      }
    }
    this.takeElsewhere();
  }

  /** Bytes on a card that it was not given: an index that meant another card. */
  private takeElsewhere(): void {
    const { world, behaviour } = this;
    if (behaviour.misplacedBytes === 0) return;
    const other = world.cards.find(({ about }) => !this.devices.includes(about.device));
    other?.allocate(this.generation, behaviour.misplacedBytes);
  }

  reportSlice(model: HostedModel, slice: Slice, parts: readonly LeasePart[] | null, loadMs: number | null): void {
    if (slice.lease === null) return;
    this.say({
      type: 'residency_reported', request: this.nextRequest(), lease: slice.lease, model: model.spec.key, seq: ++this.reports,
      state: model.state, residentBytes: slice.takenBytes, hostBytes: bytesOn(model.hostBytes, slice), parts, loadMs,
    });
  }

  reportResidency(model: HostedModel, parts: boolean, loadMs: number | null): void {
    for (const slice of model.slices) this.reportSlice(model, slice, parts ? slice.parts : null, loadMs);
  }

  reportUse(model: HostedModel): void {
    for (const { lease } of model.slices) {
      if (lease !== null) this.say({ type: 'use_reported', lease, seq: ++this.reports, inFlight: model.running.size, queued: model.queue.length });
    }
  }

  /** Answers a command, in the manner of this process. */
  answer(command: number | null, answer: CommandAnswer): void {
    if (command === null) return;
    const { behaviour, connection } = this;
    const final = answer.kind !== 'draining';
    this.later(final ? behaviour.answersLateMs : 0, () => {
      if (this.connection !== connection) return;
      this.say({ type: 'command_answered', command, answer });
      if (behaviour.answersTwice) this.say({ type: 'command_answered', command, answer });
      if (behaviour.answersWrong) this.speakForOthers(command);
    });
  }

  /** Answers what others were asked, and speaks of leases that are not its own. */
  private speakForOthers(command: number): void {
    const { random } = this.world;
    for (const other of [command - 1, command + 1, command + random.int(2, 5)]) {
      this.say({ type: 'command_answered', command: other, answer: { kind: 'done', target: 'none', freedBytes: 0, residentBytes: 0, hostBytes: 0 } });
    }
    const lease = this.world.leaseOfAnother(this.generation)?.lease;
    if (lease === undefined) return;
    this.say({ type: 'use_reported', lease, seq: 1_000_000, inFlight: 0, queued: 0 });
    this.say({ type: 'lease_released', lease, cause: 'unloaded', failure: null });
  }

  protected override obey(effect: Effect): void {
    switch (effect.type) {
      case 'grant':
        loadFromGrant(this, effect);
        return;
      case 'deny':
        refuse(this, effect.request, effect.code);
        return;
      case 'fail':
        if (effect.request !== null) refuse(this, effect.request, effect.code);
        return;
      case 'move':
        obeyMove(this, effect);
        return;
      case 'cancel_command':
        obeyCancel(this, effect.command);
        return;
      case 'trim_host':
        obeyTrim(this, effect);
        return;
      case 'recall':
        obeyRecall(this, effect.command, effect.lease);
        return;
      case 'list_models':
        this.announce();
        if (this.isReturning) this.tellAll();
        return;
      default:
    }
  }

  /** Everything that it has on lease. */
  held(): readonly HeldState[] {
    return [...this.models.values()].flatMap((model) => model.slices.flatMap((slice) => (slice.lease === null ? [] : [stateOf(model, { ...slice, lease: slice.lease })])));
  }

  private announce(): void {
    const held = this.held();
    const claim = this.isReturning && this.world.returns.claimsOthers(this.world.faults.claimsOthers) ? this.world.leaseOfAnother(this.generation) : null;
    this.say({ type: 'models_announced', seq: ++this.reports, models: claim === null ? held : this.world.returns.withClaim(held, claim, this.devices) });
    if (claim !== null) this.say({ type: 'residency_reported', request: this.nextRequest(), seq: ++this.reports, lease: claim.lease, model: claim.model, state: claim.state, residentBytes: claim.residentBytes, hostBytes: claim.hostBytes, parts: null, loadMs: null });
  }

  /** Calls go on. Ids count anew with the next connection. */
  protected override detached(): void {
    this.isReturning = false;
    this.requests = 0;
    this.asked.clear();
    for (const model of this.models.values()) {
      voidAsking(model);
      voidDoor(this, model);
      voidGrant(model);
      this.pump(model);
    }
  }

  /** Back with a broker: asked what is held, it is told; asking for more comes after that. */
  protected comeBack(): void {
    const { returned } = this;
    this.isReturning = true;
    this.connect();
    this.say({ type: 'process_resumed' });
    this.later(this.world.knobs.limits.commandAnswerMs, () => { if (this.isReturning && this.returned === returned) this.askAgain(); });
  }

  /** Everything has been announced: what was measured and how it is used follows, then what was asked of the broker that is gone. */
  private tellAll(): void {
    this.world.counters.returned++;
    for (const model of this.models.values()) {
      const { state } = model;
      if (state === 'resident' || state === 'parked') this.reportResidency(model, state === 'resident', null);
      this.reportUse(model);
    }
    this.askAgain();
  }

  private askAgain(): void {
    this.isReturning = false;
    this.returned++;
    for (const model of this.models.values()) {
      sendAsking(this, model);
      this.pump(model);
    }
  }

  /** The process ends: bytes go back to the driver, callers learn of it. */
  protected leave(): void {
    this.alive = false;
    this.connection?.break();
    for (const card of this.world.cards) if (card.bytesOf(this.generation) > 0 || this.devices.includes(card.about.device)) card.exit(this.generation, this.world.lag('exit'));
    // The kernel takes a process's memory back before it tells of its end.
    this.world.memory?.exitAtOnce(this.generation);
    for (const model of this.models.values()) endAllCalls(model, 'worker_lost');
  }
}
