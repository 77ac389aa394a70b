/** After a broker's end: no card is used before everybody there has spoken, nobody is given up too soon or waited for too long, no lease is there twice. */
import type { CardView, LedgerView } from '../../../broker/core/view.js';
import type { Check, EffectOf } from './check.js';
import type { AuditedCard, AuditedProcess, AuditedRequest } from './records.js';

/** Nothing new is promised where a process of an earlier broker has not said what it holds. */
export function checkClosed(check: Check, name: string, card: AuditedCard): void {
  for (const process of check.book.closedBy(card.device)) {
    if (!mayBeKnown(check, process, card)) check.broken('closed-card', `${name}: ${process.generation} has not said what it holds there`);
  }
}

export function checkShownClosed(check: Check, shown: CardView, card: AuditedCard): void {
  const closers = check.book.closedBy(card.device);
  const names = shown.closed?.waitsFor ?? [];
  for (const process of closers) {
    if (!names.includes(process.generation) && !mayBeKnown(check, process, card)) check.broken('view-closed', `${card.device} is not shown as closed by ${process.generation}`);
  }
  for (const process of closers) {
    if (names.includes(process.generation) && mustBeKnown(check, process, card)) check.broken('view-closed', `${card.device} is still closed by ${process.generation}, whose bytes the driver shows`);
  }
  for (const generation of names) {
    if (!closers.some((process) => process.generation === generation)) check.broken('view-closed', `${card.device} is shown as closed by ${generation}, which has spoken or is gone`);
  }
}

/** One that is waited for no longer and cannot be ended is charged by the driver's figure, where there is one. */
function mayBeKnown(check: Check, process: AuditedProcess, card: AuditedCard): boolean {
  const isGivenUp = process.state === 'ending' || (process.role === 'holder' && waitedMostUs(check, process) >= patienceUs(check, process));
  // What it has of the machine's memory is in every reading of the whole.
  return isGivenUp && (card.confirms === 'process' || card.device === check.book.memory?.device);
}

/** A holder that has been waited for is charged with what is seen of it, and the card goes on. */
function mustBeKnown(check: Check, process: AuditedProcess, card: AuditedCard): boolean {
  const { limits } = check.book.options;
  const { waitedForSince } = process;
  if (process.role !== 'holder' || process.connected || waitedForSince === null) return false;
  const isMemory = card.device === check.book.memory?.device;
  if (!isMemory && card.confirms !== 'process') return false;
  if (card.sample?.hasFigures !== true || card.missing !== null) return false;
  const slackUs = (2 * (limits.stallToleranceMs + limits.tickIntervalMs) + limits.sampleIntervalMs) * 1_000;
  const isOverdue = check.book.clock.leastUs - waitedForSince.leastUs > patienceUs(check, process) + slackUs;
  return isOverdue && (isMemory || (check.truth.at(card.device, card.sample.takenAtUs)?.byProcess.get(process.generation) ?? 0) > 0);
}

/** For a worker that lost its broker: null when it has been waited for as long as it was told. */
export function whyNotGivenUp(check: Check, process: AuditedProcess, cause: EffectOf<'terminate'>['cause']): string | null {
  if (cause === 'session_lost' && process.connected) return 'its session is open';
  // It has not been ready yet, as far as is known: its start has its own limit.
  if (process.state === 'spawning') return null;
  if (process.state !== 'away') return 'it has a broker';
  const waitedUs = waitedMostUs(check, process);
  const limitUs = patienceUs(check, process);
  return waitedUs < limitUs ? `it has been waited for ${waitedUs} us of ${limitUs}` : null;
}

/** A worker that does not come back, or does and says nothing, is ended, and so is one that falls silent. */
export function checkGivenUp(check: Check): void {
  const { limits } = check.book.options;
  const slackUs = 2 * (limits.stallToleranceMs + limits.tickIntervalMs) * 1_000;
  for (const process of check.book.processes.values()) {
    if (process.role !== 'worker') continue;
    const silentUs = check.book.clock.leastUs - process.heardLeastUs;
    const silentMaxUs = limits.heartbeatIntervalMs * limits.heartbeatMissesMax * 1_000;
    if (process.state === 'ready' && process.connected && silentUs > silentMaxUs + slackUs) check.broken('silent-kept', `${process.generation} has been silent for ${silentUs} us of ${silentMaxUs}`);
    if (process.state !== 'away' || process.waitedForSince === null) continue;
    const waitedUs = check.book.clock.leastUs - process.waitedForSince.leastUs;
    const limitUs = process.connected ? (limits.spawnTimeoutMs + limits.moveTimeoutMs) * 1_000 : patienceUs(check, process);
    if (waitedUs > limitUs + slackUs) check.broken('orphan-kept', `${process.generation} has been waited for ${waitedUs} us of ${limitUs}`);
  }
}

/** A model that a worker on its way back may have is not loaded a second time: who asked since the last of them came is waiting. */
export function checkBeside(check: Check, name: string, wanting: readonly AuditedRequest[]): void {
  const { book } = check;
  const away = [...book.processes.values()].filter((process) => process.state === 'away' && process.closes.length > 0 && process.role === 'worker');
  const mustWait = wanting.every((request) => request.arrivedAtUs > book.lastReturnUs && away.some((process) => mayServe(check, process, request)));
  if (mustWait) check.broken('spawn-beside', `${name}: ${away.map((process) => process.generation).join()} may have what it is wanted for`);
}

/** By its engine and its cards. */
function mayServe({ book }: Check, { engine, devices }: AuditedProcess, request: AuditedRequest): boolean {
  if (engine !== request.engine || devices.length !== request.cards) return false;
  return devices.every((device) => book.cards.get(device)?.lostSinceUs === null) && (request.device === null || devices.includes(request.device));
}

function waitedMostUs(check: Check, process: AuditedProcess): number {
  return check.book.clock.mostUs - (process.waitedForSince?.mostUs ?? check.book.clock.mostUs);
}

function patienceUs(check: Check, process: AuditedProcess): number {
  const { reattachGraceMs, spawnTimeoutMs, moveTimeoutMs } = check.book.options.limits;
  return (process.connected ? Math.min(spawnTimeoutMs, moveTimeoutMs) : reattachGraceMs) * 1_000;
}

/** Whoever names it, a lease is whose it was granted to. */
export function checkOwners(check: Check, view: LedgerView): void {
  for (const { lease, generation } of view.leases) {
    const owner = check.book.ownerOf(lease);
    if (owner !== null && owner !== generation) check.broken('lease-owner', `${lease} is shown as a lease of ${generation}; it was granted to ${owner}`);
  }
}

/** One process holds one model once, and one lease is one. What a holder calls so may be two things, where the seed says so. */
export function checkDoubled(check: Check, view: LedgerView): void {
  const seen = new Set<string>();
  const ordered = new Set([...check.book.commands.values()].filter((command) => command.kind === 'move').map((command) => command.lease));
  for (const { lease, generation, model, device, state } of view.leases) {
    // What is on its way in, or was told to go, may be beside what comes after it.
    const mayBeTwo = check.book.options.twins > 0 && check.book.process(generation)?.role === 'holder';
    const isSettled = (state === 'resident' || state === 'parked') && !ordered.has(lease) && !mayBeTwo;
    const holding = isSettled ? `${generation} ${model} ${device}` : lease;
    if (seen.has(lease) || seen.has(holding)) check.broken('view-doubled', `${lease}: ${holding} is in the ledger twice`);
    seen.add(lease).add(holding);
  }
}
