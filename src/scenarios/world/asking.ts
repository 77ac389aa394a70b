/** What a process asks of the broker for a model, on all of its cards together: once, again more urgently under the same ids (D2), or again with its age when a broker was lost before its answer (D3). */
import type { LeasePart } from '../../../protocol/index.js';
import type { CallOutcome } from './context.js';
import { endAllCalls, needOn, shareOf, type Asking, type HostedModel, type Slice } from './hosted.js';
import type { Hosting } from './hosting.js';

export function ask(host: Hosting, model: HostedModel, wanted: Pick<Asking, 'kind' | 'class' | 'deadlineUs' | 'call'>, partsOn: (slice: Slice) => readonly LeasePart[] = () => []): void {
  const parts = new Map(model.slices.map((slice) => [slice, partsOn(slice)]));
  model.asking = { ...wanted, parts, requests: new Map(), granted: new Map(), gang: null, sinceUs: host.world.scheduler.coreUs, isAgain: false };
  sendAsking(host, model);
}

/** Where no broker may be asked yet, it is when one may. */
export function sendAsking(host: Hosting, model: HostedModel): void {
  const { asking } = model;
  if (asking === null || !host.mayAsk) return;
  if (asking.requests.size === 0) open(host, model, asking);
  const [first] = asking.requests.keys();
  if (first === undefined) return;
  if (asking.isAgain && asking.deadlineUs <= host.world.scheduler.coreUs) refuse(host, first, 'deadline_passed');
  else if (asking.kind === 'resize') sayResize(host, model, asking, first);
  else for (const [request, slice] of asking.requests) sayBudget(host, model, asking, request, slice);
}

/** A request for each card; a resize is one for all. */
function open(host: Hosting, model: HostedModel, asking: Asking): void {
  for (const slice of asking.kind === 'resize' ? model.slices.slice(0, 1) : model.slices) asking.requests.set(host.nextRequest(), slice);
  asking.gang = asking.requests.size > 1 ? host.nextGang() : null;
  for (const request of asking.requests.keys()) host.asked.set(request, model);
}

/** All grow or none. */
function sayResize(host: Hosting, model: HostedModel, asking: Asking, request: number): void {
  const [lead, ...others] = model.slices.flatMap((slice) => (slice.lease === null ? [] : [{ lease: slice.lease, parts: asking.parts.get(slice) ?? [] }]));
  if (lead === undefined) refuse(host, request, 'lease_unknown');
  else host.say({ type: 'resize_requested', request, ...lead, ...(others.length === 0 ? {} : { also: others }) });
}

function sayBudget(host: Hosting, model: HostedModel, asking: Asking, request: number, slice: Slice): void {
  const { spec } = model;
  const { coreUs } = host.world.scheduler;
  const isLoad = asking.kind === 'load';
  host.say({
    type: 'budget_requested', request, model: spec.key, device: slice.device, lease: slice.lease, parts: isLoad ? loadParts(model, slice) : (asking.parts.get(slice) ?? []),
    peakBytes: isLoad ? Math.floor(spec.peakBytes * slice.share) : 0, class: asking.class, deadlineMs: Math.max(1, Math.round((asking.deadlineUs - coreUs) / 1_000)),
    ageMs: asking.isAgain ? Math.max(0, Math.round((coreUs - asking.sinceUs) / 1_000)) : 0, parkable: spec.parkable, ...(isLoad && spec.memory !== null ? { host: needOn(spec.memory.asked, slice) } : {}), profilesFreeMemory: host.engine.profilesFreeMemory, source: 'estimated',
    policy: { ttlMs: spec.ttlMs, pinned: spec.pinned, exclusive: false }, gang: asking.gang === null ? null : { gang: asking.gang, size: asking.requests.size },
  });
}

/** Contexts that were closed when it was parked are no parts of the lease any more. */
function loadParts({ spec }: HostedModel, { share, lease, parts }: Slice): readonly LeasePart[] {
  const declared = shareOf(spec.parts, share);
  const closed = lease === null ? [] : parts.filter((part) => !declared.some((each) => each.name === part.name));
  return [...declared, ...closed.map((part) => ({ ...part, bytes: 0 }))];
}

/** Whoever was asked is gone. */
export function voidAsking({ asking }: HostedModel): void {
  if (asking === null) return;
  asking.requests.clear();
  asking.granted.clear();
  asking.isAgain = true;
}

/** The broker said no, or the asker's time is up. */
export function refuse(host: Hosting, request: number, code: string): void {
  const model = host.asked.get(request);
  host.asked.delete(request);
  if (model?.asking?.requests.has(request) !== true) return;
  const { asking } = model;
  model.asking = null;
  const outcome: CallOutcome = code === 'request_cancelled' ? 'cancelled' : 'denied';
  if (asking.call === null) endAllCalls(model, outcome, code);
  else if (asking.kind !== 'context') host.endCall(model, asking.call, asking.kind === 'resize' ? 'resize_denied' : outcome, code);
  host.pump(model);
}
