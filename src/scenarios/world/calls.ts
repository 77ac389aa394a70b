/** Calls on a model: queued, begun when the door lets them, ended once; what the broker hears of them are absolute counts. */
import type { Call, CallOutcome } from './context.js';
import { higherClass, isLeased, isOlderThanWaiter, shareOf, sumBytes, tellCaller, type HostedModel, type Slice } from './hosted.js';
import type { Hosting } from './hosting.js';
import { ask, sendAsking } from './asking.js';

/** A caller that joins a request under way may make it more urgent; it is never asked twice. */
export function noteNewCall(host: Hosting, model: HostedModel, call: Call): void {
  const { asking } = model;
  if (asking?.kind !== 'load') return;
  const raised = higherClass(asking.class, call.class);
  if (raised === asking.class && call.deadlineUs <= asking.deadlineUs) return;
  asking.class = raised;
  asking.deadlineUs = Math.max(asking.deadlineUs, call.deadlineUs);
  sendAsking(host, model);
}

export function pump(host: Hosting, model: HostedModel): void {
  for (;;) {
    const call = model.queue[0];
    if (call === undefined || model.state !== 'resident' || model.running.size >= model.spec.parallel) break;
    if (needsLargerContext(model, call)) {
      switchContext(host, model, call);
      break;
    }
    if (!mayBegin(model, call)) break;
    model.queue.shift();
    start(host, model, call);
  }
  host.moveIfDrained(model);
  const needsRoom = model.state === 'absent' || model.state === 'parked';
  if (needsRoom && model.queue.length > 0 && model.door === null && !isGranted(model)) host.askForRoom(model);
}

function needsLargerContext(model: HostedModel, call: Call): boolean {
  return model.slices.some((slice) => {
    const neededBytes = contextOn(slice, call);
    return neededBytes !== null && !slice.parts.some((part) => part.kind === 'context' && part.bytes >= neededBytes);
  });
}

/** What of the context that the call needs is on that card; null: the declared one does. */
export function contextOn(slice: Slice, call: Call): number | null {
  return call.contextBytes === null ? null : Math.floor(call.contextBytes * slice.share);
}

/** The larger context takes the place of the idle smaller ones: an ordinary request, asked when the last call has ended (D17). */
function switchContext(host: Hosting, model: HostedModel, call: Call): void {
  if (model.running.size > 0 || model.asking !== null || !isLeased(model) || model.door !== null) return;
  const name = `context:${model.contexts + 1}`;
  ask(host, model, { kind: 'switch', class: call.class, deadlineUs: call.deadlineUs, call }, (slice) => {
    const dropped = slice.parts.filter((part) => part.kind === 'context').map((part) => ({ ...part, bytes: 0 }));
    return [...dropped, { name, kind: 'context', bytes: contextOn(slice, call) ?? 0, upFront: true }];
  });
}

/** A lease that has been granted and is not yet being loaded. A parked model keeps its lease and needs room again. */
function isGranted(model: HostedModel): boolean {
  return isLeased(model) && model.state === 'absent';
}

function mayBegin(model: HostedModel, call: Call): boolean {
  const { door } = model;
  if (door === null) return true;
  if (!isOlderThanWaiter(model, call) || door.batchLeft === 0) return false;
  door.batchLeft--;
  return true;
}

function start(host: Hosting, model: HostedModel, call: Call): void {
  model.running.add(call);
  if (!growContext(host, model)) {
    endCall(host, model, call, 'out_of_memory');
    return;
  }
  call.onBegun?.();
  const { random } = host.world;
  if (model.asking === null && isLeased(model) && model.door === null) {
    if (random.chance(model.spec.grows)) askToGrow(host, model, call);
    else if (random.chance(model.spec.addsContexts)) askForContext(host, model, call);
  }
  host.later(call.durationMs, () => endCall(host, model, call, 'answered'));
}

/** Parts that the engine takes as it goes reach their true size with the first call. */
function growContext(host: Hosting, model: HostedModel): boolean {
  let moreBytes = 0;
  for (const slice of model.slices) {
    const truth = shareOf(model.spec.trueParts, slice.share);
    const grown = slice.parts.map((part) => {
      const full = truth.find((each) => each.name === part.name);
      return full === undefined || part.upFront || part.bytes >= full.bytes ? part : { ...part, bytes: full.bytes };
    });
    const grownBytes = sumBytes(grown) - sumBytes(slice.parts);
    if (grownBytes === 0) continue;
    if (!host.allocate(model, slice, grownBytes)) return false;
    slice.parts = grown;
    moreBytes += grownBytes;
  }
  if (moreBytes > 0 && isLeased(model)) host.reportResidency(model, false, null);
  return true;
}

/** One request for all of its leases: all grow or none. */
function askToGrow(host: Hosting, model: HostedModel, call: Call): void {
  if (!isLeased(model) || !model.slices.some((slice) => slice.parts.some((part) => part.kind === 'context'))) return;
  ask(host, model, { kind: 'resize', class: call.class, deadlineUs: call.deadlineUs, call }, (slice) => slice.parts.filter((part) => part.kind === 'context').map((part) => ({ ...part, bytes: Math.floor(part.bytes * 1.3) })));
}

/** One more context beside the others. */
function askForContext(host: Hosting, model: HostedModel, call: Call): void {
  const context = model.spec.parts.find((part) => part.kind === 'context');
  if (context === undefined || !isLeased(model)) return;
  const name = `context:${model.contexts + 1}`;
  ask(host, model, { kind: 'context', class: call.class, deadlineUs: call.deadlineUs, call }, (slice) => shareOf([{ ...context, name }], slice.share));
}

export function endCall(host: Hosting, model: HostedModel, call: Call, outcome: CallOutcome, code: string | null = null): void {
  const queued = model.queue.indexOf(call);
  if (queued >= 0) model.queue.splice(queued, 1);
  else if (!model.running.delete(call)) return;
  tellCaller(call, outcome, code);
  const isForNobody = model.asking?.kind === 'load' ? model.queue.length === 0 : model.asking?.kind === 'switch' && model.asking.call === call;
  if (isForNobody) cancelAsking(host, model);
  host.pump(model);
  host.reportUse(model);
}

/** What was to be added to a model that is now leaving is not wanted any more; its call asks again when the model is back. */
export function takeBackExtension(host: Hosting, model: HostedModel): void {
  if (model.asking?.kind === 'context' || model.asking?.kind === 'switch') cancelAsking(host, model);
}

/** The last caller has left: the request is taken back (D2). A grant that crosses is given back when it comes. */
function cancelAsking(host: Hosting, model: HostedModel): void {
  const { asking } = model;
  if (asking === null) return;
  model.asking = null;
  for (const request of asking.requests.keys()) host.say({ type: 'request_cancelled', request });
  if (asking.kind === 'load' && model.state !== 'parked') for (const { lease } of asking.granted.values()) host.say({ type: 'lease_released', lease, cause: 'cancelled', failure: null });
}
