/**
 * Requests and the machine's memory. A request is granted only when its card and the machine have room, both at once.
 * There is no queue there: those that wait for it are in the queues of their cards, and the first of all of them that
 * has a prospect, by the same order, is the one that room is made and kept for. So no two hold a part each and wait for
 * the other's, and who waits for what may never come stands in nobody's way until its longest wait is over.
 */
import { available } from '../ledger/available.js';
import type { Refusal } from '../requests/deny.js';
import { planHost, carryOutHost, hostDrainingBytes, hostLeavingBytes, type HostVictim } from './eviction.js';
import { setHostHold } from './hold.js';
import { hostNeedOf } from './share.js';
import { capacityBytes } from '../ledger/need.js';
import { wantSample } from '../cards/probe.js';
import { goesBefore, isOverdue } from '../requests/queue.js';
import { seekerOf } from '../requests/seeker.js';
import { explain, inWords } from '../report.js';
import type { Card, Core, Waiter } from '../state.js';

/** Whether the machine's memory has what the request needs there, beside all that is held for others. */
export function hostHasRoom(core: Core, waiter: Waiter): boolean {
  const { host } = core;
  if (host === null) return true;
  waiter.hostNeedBytes = hostNeedOf(core, waiter);
  if (waiter.hostHoldBytes > waiter.hostNeedBytes) setHostHold(core, host, waiter, waiter.hostNeedBytes);
  if (waiter.hostNeedBytes === 0) return true;
  if (host.closedBy.size > 0) return false;
  const { freeBytes } = available(core, host);
  return freeBytes !== null && waiter.hostNeedBytes <= freeBytes - host.holdBytes + waiter.hostHoldBytes;
}

/** For a request that its card could serve: null when the machine's memory can, too; else what it waits for there. */
export function askHost(core: Core, waiter: Waiter): string | null {
  return lookAtHost(core, waiter, true);
}

/** For one that its card cannot serve yet: null when the machine's memory can, or could once others have left it. Nobody leaves a card in vain. */
export function foreseeHost(core: Core, waiter: Waiter): string | null {
  return lookAtHost(core, waiter, false);
}

function lookAtHost(core: Core, waiter: Waiter, isTurn: boolean): string | null {
  const { host } = core;
  if (host === null || hostHasRoom(core, waiter)) return null;
  core.hostWaiters.add(waiter.key);
  if (host.closedBy.size > 0) return 'host_closed';
  const { freeBytes } = available(core, host);
  if (freeBytes === null) {
    wantSample(core, host, core.nowUs);
    return 'host_unmeasured';
  }
  if (isBehind(core, waiter)) return 'host_behind';
  // What is held there is held for one that comes after it.
  const fits = waiter.hostNeedBytes <= freeBytes;
  if (fits) setHopeless(core, waiter, false);
  const reason = fits ? null : pursueHost(core, host, waiter, freeBytes, isTurn);
  if (reason === 'host_full' && !isOverdue(core, waiter)) {
    setHostHold(core, host, waiter, 0);
    return reason;
  }
  for (const key of core.hostWaiters) {
    const other = core.waiters.get(key);
    if (other !== undefined && other !== waiter) setHostHold(core, host, other, 0);
  }
  const keeps = waiter.planned || core.attendedUs - waiter.arrivedUs >= core.options.limits.backfillUntilMs * 1_000;
  setHostHold(core, host, waiter, keeps ? Math.max(0, Math.min(waiter.hostNeedBytes, freeBytes)) : 0);
  return reason;
}

/** One goes before it that has a prospect there, or has waited as long as any may: the order is that of the queues, across all cards. */
function isBehind(core: Core, waiter: Waiter): boolean {
  for (const key of core.hostWaiters) {
    const other = core.waiters.get(key);
    if (other === undefined || other === waiter || !goesBefore(core, other, waiter)) continue;
    if (!other.hostHopeless || isOverdue(core, other)) return true;
  }
  return false;
}

/** What stands against waiting for the machine's memory; null: nothing. */
export function refuseHost(core: Core, waiter: Waiter): Refusal | null {
  const { host } = core;
  if (host === null) return null;
  const needBytes = hostNeedOf(core, waiter);
  const shown = { card: host, requestedBytes: needBytes, needBytes, floorBytes: 0, ownHoldBytes: waiter.hostHoldBytes };
  if (needBytes > capacityBytes(host)) {
    waiter.hostNeedBytes = needBytes;
    return {
      ...shown, code: 'never_fits', details: { model: waiter.model, needBytes: String(needBytes), device: host.device, mostBytes: String(capacityBytes(host)) },
      text: `${waiter.model} can never be loaded here: ${inWords(needBytes)} of the machine's memory are needed for it; at most ${inWords(capacityBytes(host))} could be had`,
    };
  }
  if (needBytes === 0 || core.options.allowHostUnknown === true || host.missing?.reading !== 'unsupported') return null;
  return {
    ...shown, code: 'device_unmeasured', details: { device: host.device, reading: host.missing.reading },
    text: 'the machine\'s free memory cannot be read, and the ledger alone is not allowed for it',
  };
}

/** When the machine's memory has changed, those that wait for it are looked at again; once for each change. */
export function wakeHostWaiters(core: Core, host: Card): void {
  if (core.hostWaiters.size === 0) return;
  const seen = `${String(available(core, host).freeBytes)} ${String(host.holdBytes)} ${String(host.planEpoch)} ${String(core.hostWaiters.size)}`;
  if (seen === core.hostSeen) return;
  core.hostSeen = seen;
  for (const key of core.hostWaiters) {
    const waiter = core.waiters.get(key);
    if (waiter !== undefined) core.dirty.add(waiter.device);
  }
}

/** Waits for what is on its way there, else plans before it evicts; evicts only when its card could serve it. */
function pursueHost(core: Core, host: Card, waiter: Waiter, ownBytes: number, isTurn: boolean): string | null {
  const shortBytes = waiter.hostNeedBytes - ownBytes - hostLeavingBytes(core, host);
  if (waiter.hostTriedEpoch === host.planEpoch && waiter.hostHopeless) return 'host_full';
  const plan = shortBytes <= 0 ? [] : planFor(core, host, waiter, shortBytes);
  waiter.hostTriedEpoch = host.planEpoch;
  setHopeless(core, waiter, plan === null);
  if (plan === null) return 'host_full';
  if (!isTurn) return null;
  if (plan.length === 0) return 'host_leaving';
  waiter.planned = true;
  carryOutHost(core, host, plan, {
    cause: 'plan', waiterSinceAtUs: waiter.arrivedAtUs, beneficiary: waiter.key, reason: `room in the machine's memory for ${waiter.model}`,
    tell: (victims, costText) => {
      explain(core, {
        verdict: 'evicting', text: `${waiter.model} needs ${inWords(shortBytes)} more of the machine's memory: ${costText}`,
        generation: waiter.generation, request: waiter.request, model: waiter.model, device: host.device, class: waiter.class, arrivedUs: waiter.arrivedUs, victims,
      });
    },
  });
  return 'host_leaving';
}

/** Idle victims; else nobody more than those whose doors are shut already; else, once it has waited as long as its class says, busy ones. Null: nothing would suffice, or not yet. */
function planFor(core: Core, host: Card, waiter: Waiter, shortBytes: number): readonly HostVictim[] | null {
  const seeker = seekerOf(core, waiter);
  const idle = planHost(core, host, seeker, shortBytes);
  if (idle !== null) return idle;
  const restBytes = shortBytes - hostDrainingBytes(core, host);
  if (restBytes <= 0 || (restBytes < shortBytes && planHost(core, host, seeker, restBytes) !== null)) return [];
  const mayDrain = core.attendedUs - waiter.arrivedUs >= core.options.classPolicies[waiter.class].drainAfterMs * 1_000;
  return mayDrain ? planHost(core, host, seeker, restBytes, true) : null;
}

/** Those that came after it need not wait for what has no prospect. */
function setHopeless(core: Core, waiter: Waiter, hopeless: boolean): void {
  if (hopeless === waiter.hostHopeless) return;
  waiter.hostHopeless = hopeless;
  for (const key of core.hostWaiters) {
    const other = core.waiters.get(key);
    if (hopeless && other?.told === 'host_behind') core.dirty.add(other.device);
  }
}
