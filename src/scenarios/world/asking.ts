/** What a process asks of the broker for a model: once, again more urgently under the same id (D2), or again with its age when a broker was lost before its answer (D3). */
import type { CallOutcome } from './context.js';
import { endAllCalls, type Asking, type HostedModel } from './hosted.js';
import type { Hosting } from './hosting.js';

export function ask(host: Hosting, model: HostedModel, wanted: Pick<Asking, 'kind' | 'class' | 'deadlineUs' | 'call' | 'parts'>): void {
  model.asking = { ...wanted, request: null, sinceUs: host.world.scheduler.coreUs, isAgain: false };
  sendAsking(host, model);
}

/** Where no broker may be asked yet, it is when one may. */
export function sendAsking(host: Hosting, model: HostedModel): void {
  const { asking } = model;
  if (asking === null || !host.mayAsk) return;
  if (asking.request === null) {
    asking.request = host.nextRequest();
    host.asked.set(asking.request, model);
  }
  const { request, kind, parts, deadlineUs } = asking;
  if (asking.isAgain && deadlineUs <= host.world.scheduler.coreUs) refuse(host, request, 'deadline_passed');
  else if (kind !== 'resize') sayBudget(host, model, asking, request);
  else if (model.lease !== null) host.say({ type: 'resize_requested', request, lease: model.lease, parts });
  else refuse(host, request, 'lease_unknown');
}

function sayBudget(host: Hosting, model: HostedModel, asking: Asking, request: number): void {
  const { spec } = model;
  const { coreUs } = host.world.scheduler;
  const isLoad = asking.kind === 'load';
  host.say({
    type: 'budget_requested', request, model: spec.key, device: host.device, lease: model.lease, parts: isLoad ? loadParts(model) : asking.parts,
    peakBytes: isLoad ? spec.peakBytes : 0, class: asking.class, deadlineMs: Math.max(1, Math.round((asking.deadlineUs - coreUs) / 1_000)),
    ageMs: asking.isAgain ? Math.round((coreUs - asking.sinceUs) / 1_000) : 0, parkable: spec.parkable, profilesFreeMemory: host.engine.profilesFreeMemory, source: 'estimated',
    policy: { ttlMs: spec.ttlMs, pinned: spec.pinned, exclusive: false }, gang: null,
  });
}

/** Contexts that were closed when it was parked are no parts of the lease any more. */
function loadParts({ spec, lease, parts }: HostedModel): Asking['parts'] {
  const closed = lease === null ? [] : parts.filter((part) => !spec.parts.some((declared) => declared.name === part.name));
  return [...spec.parts, ...closed.map((part) => ({ ...part, bytes: 0 }))];
}

/** Whoever was asked is gone. */
export function voidAsking({ asking }: HostedModel): void {
  if (asking === null) return;
  asking.request = null;
  asking.isAgain = true;
}

/** The broker said no, or the asker's time is up. */
export function refuse(host: Hosting, request: number, code: string): void {
  const model = host.asked.get(request);
  host.asked.delete(request);
  if (model?.asking?.request !== request) return;
  const { asking } = model;
  model.asking = null;
  const outcome: CallOutcome = code === 'request_cancelled' ? 'cancelled' : 'denied';
  if (asking.call === null) endAllCalls(model, outcome);
  else if (asking.kind !== 'context') host.endCall(model, asking.call, asking.kind === 'resize' ? 'resize_denied' : outcome);
  host.pump(model);
}
