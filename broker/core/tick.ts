/** The clock has been looked at, after all sockets: what is due falls due here and nowhere else. */
import { durationText } from '../../protocol/index.js';
import { waitsForHost } from './requests/admission.js';
import { jobOverdue } from './eviction/answers.js';
import { publishSlowLeaving, slowLeaving, slowLeavingText } from './eviction/slow-leaving.js';
import { isLedgerOnly, numbersOf } from './ledger/available.js';
import { inMs } from './clock.js';
import { endWorkersOn } from './cards/card.js';
import { deny, shortageText } from './requests/deny.js';
import { trimOverdue } from './memory/trim.js';
import { considerIdle, isIdleWorker } from './processes/idle.js';
import { loadOverdue, recall } from './ledger/lease-events.js';
import { breakPromise } from './processes/model.js';
import { mustCard } from './must.js';
import { shownNeed } from './ledger/need.js';
import { reconsiderOver } from './cards/overshoot.js';
import { detachedOverdue, heartbeatDue, spawnOverdue } from './processes/process.js';
import { retrySample, wantSample } from './cards/probe.js';
import { queueLength } from './requests/queue.js';
import { releaseOverdue, returningOverdue } from './ledger/residue.js';
import type { Card, Core, Waiter } from './state.js';
import { pursueStranded } from './gangs/stranded.js';
import { terminate } from './processes/terminate.js';
import { watchThrash } from './thrash/watch.js';
import type { Timer } from './timers.js';
import { ttlDue } from './eviction/ttl.js';
import { endWaiter } from './requests/waiter.js';
import { whatStays } from './requests/what-stays.js';
import { wishOverdue } from './requests/wish.js';

export function onTicked(core: Core): void {
  for (;;) {
    const timer = core.timers.takeDue(core.attendedUs);
    if (timer === null) break;
    fire(core, timer);
  }
  if (core.stranded.size > 0) pursueStranded(core);
  for (const id of [...core.over]) withOne(core.leases.get(id), (lease) => reconsiderOver(core, lease));
  for (const card of core.cards.values()) {
    const unconfirmed = card.releasing.size > 0 || card.returning.size > 0;
    const waiting = queueLength(card) > 0;
    if (waiting || card.jobs.size > 0) {
      // Time alone may make a victim possible: residency has its minimum, a waiter may shut a door.
      card.planEpoch++;
      core.dirty.add(card.device);
    }
    const age = card.sample === null ? Infinity : core.nowUs - card.sample.takenAtUs;
    if ((unconfirmed || waiting) && age >= core.options.limits.sampleIntervalMs * 1_000) wantSample(core, card, core.nowUs);
    publishSlowLeaving(core, card);
    retrySample(core, card);
    watchThrash(core, card);
  }
  if (core.host !== null) tickHost(core, core.host);
}

/** Time alone may make a victim possible there, too. */
function tickHost(core: Core, host: Card): void {
  if (core.hostWaiters.size > 0) {
    host.planEpoch++;
    core.dirty.add(host.device);
    const age = host.sample === null ? Infinity : core.nowUs - host.sample.takenAtUs;
    if (age >= core.options.limits.sampleIntervalMs * 1_000) wantSample(core, host, core.nowUs);
  }
  retrySample(core, host);
}

function fire(core: Core, timer: Timer): void {
  const { kind, key } = timer;
  switch (kind) {
    case 'deadline':
      withOne(core.waiters.get(key), (waiter) => deadlinePassed(core, waiter));
      return;
    case 'evict_deadline':
      wishOverdue(core, key);
      return;
    case 'grant_confirm':
      withOne(core.leases.get(key), (lease) => recall(core, lease));
      return;
    case 'load':
      withOne(core.leases.get(key), (lease) => loadOverdue(core, lease));
      return;
    case 'wish':
      if (core.leases.has(key)) core.touched.add(key);
      return;
    case 'trim':
      withOne(core.leases.get(key), (lease) => trimOverdue(core, lease));
      return;
    case 'job':
      withOne(core.leases.get(key), (lease) => jobOverdue(core, lease));
      return;
    case 'release':
      withOne(core.leases.get(key), (lease) => releaseOverdue(core, lease));
      return;
    case 'ttl':
      withOne(core.leases.get(key), (lease) => ttlDue(core, lease));
      return;
    case 'returning':
      returningDue(core, key);
      return;
    case 'card_lost':
      endWorkersOn(core, key);
      return;
    case 'assignment':
      assignmentOver(core, key);
      return;
    default:
      withOne(core.processes.get(key), (process) => processDue(core, kind, process));
  }
}

function processDue(core: Core, kind: Timer['kind'], process: Parameters<typeof terminate>[1]): void {
  if (kind === 'heartbeat') heartbeatDue(core, process);
  else if (kind === 'spawn') spawnOverdue(core, process);
  else if (kind === 'detached') detachedOverdue(core, process);
  else if (isIdleWorker(process)) idleDue(core, process);
}

/** An idle worker ends, unless a load that measures free memory runs on its card (B14). */
function idleDue(core: Core, process: Parameters<typeof terminate>[1]): void {
  if (process.devices.some((device) => (core.cards.get(device)?.loadToken ?? null) !== null)) {
    core.timers.set('idle', process.generation, inMs(core, core.options.limits.tickIntervalMs));
    return;
  }
  terminate(core, process, 'idle', `no model for ${durationText(core.options.limits.workerIdleMs)}`);
}

function returningDue(core: Core, key: string): void {
  const [device, generation] = key.split(' ');
  const card = core.cards.get(device ?? '');
  if (card !== undefined) returningOverdue(core, card, generation ?? '');
}

/** Nobody came with the ticket. */
function assignmentOver(core: Core, key: string): void {
  const place = key.indexOf(' ');
  const process = core.processes.get(key.slice(0, place));
  if (process === undefined) return;
  breakPromise(core, process, key.slice(place + 1));
  considerIdle(core, process);
}

/** The requester has waited as long as it wished to. */
function deadlinePassed(core: Core, waiter: Waiter): void {
  const card = mustCard(core, waiter.device);
  const lacking = core.host !== null && waitsForHost(waiter.told) ? core.host : card;
  const unmeasured = numbersOf(core, lacking, { requestedBytes: 0, needBytes: 0, floorBytes: 0, ownHoldBytes: 0 }).truth === 'ledger' && !isLedgerOnly(core, lacking) && lacking.missing !== null;
  const staying = whatStays(core, card, waiter);
  const causes = [waiter.told?.startsWith('no_victims') === true ? staying.text : '', lacking === card ? slowLeavingText(slowLeaving(core, card)) : ''].filter((cause) => cause !== '');
  const why = causes.length === 0 ? '' : `${causes.join('; ')}: `;
  const shortage = lacking === card ? shortageText(core, card, waiter.needBytes, waiter.holdBytes) : `of the machine's memory ${shortageText(core, lacking, waiter.hostNeedBytes, waiter.hostHoldBytes)}`;
  const reason = waiter.kind === 'place' && waiter.joined !== null ? waiter.reason : why + shortage;
  deny(core, {
    generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
    verdict: 'expired', card, ...shownNeed(core, waiter), victims: lacking === card ? staying.considered : [],
    ...(unmeasured
      ? { code: 'device_unmeasured' as const, details: { device: lacking.device, reading: lacking.missing?.reading ?? 'unknown' } }
      : { code: 'deadline_passed' as const, details: { what: `room for ${waiter.model}`, deadlineMs: String(waiter.deadlineMs), reason } }),
    text: `${waiter.model} waited ${durationText(waiter.deadlineMs)}: ${reason}`,
  });
  endWaiter(core, waiter);
}

function withOne<T>(found: T | undefined, act: (one: T) => void): void {
  if (found !== undefined) act(found);
}
