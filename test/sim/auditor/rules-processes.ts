/** Processes are started with cause, ended with cause, and never chosen when dead. */
import type { Check, EffectOf } from './check.js';
import { floorOn, isOn, type AuditedLease, type AuditedProcess } from './records.js';
import { checkBeside, whyNotGivenUp } from './rules-returns.js';
import { hasNotGrown } from './rules-memory.js';

export function checkPlaced(check: Check, placed: EffectOf<'placed'>): void {
  const { book } = check;
  const name = `placed at ${placed.worker} for ${placed.generation}#${placed.request}`;
  const worker = book.process(placed.worker);
  if (worker?.role !== 'worker') {
    check.broken('placed-dead', `${name}: no such worker is alive`);
    return;
  }
  if (worker.state !== 'ready' || !worker.connected) check.broken('placed-dead', `${name}: that worker is ${worker.state}, ${worker.connected ? '' : 'not '}connected`);
  const request = book.request(placed.generation, placed.request);
  if (request === null) return;
  if (request.engine !== null && request.engine !== worker.engine) check.broken('placed-wrong', `${name}: it runs ${worker.engine ?? '?'}, asked ${request.engine}`);
  if (request.device !== null && !worker.devices.includes(request.device)) check.broken('placed-wrong', `${name}: it is on ${worker.devices.join()}, asked ${request.device}`);
  if (worker.devices.length !== request.cards) check.broken('placed-wrong', `${name}: it has ${worker.devices.length} cards, asked ${request.cards}`);
  if (worker.devices.join() !== placed.devices.join()) check.broken('placed-wrong', `${name}: it is on ${worker.devices.join()}, said ${placed.devices.join()}`);
}

export function checkSpawn(check: Check, spawn: EffectOf<'spawn'>): void {
  const { book } = check;
  const name = `spawn ${spawn.generation} of ${spawn.engine} on ${spawn.devices.join()}`;
  if (book.processes.has(spawn.generation)) check.broken('generation-reused', `${name}: that generation was used before`);
  const workers = [...book.processes.values()].filter((process) => process.role === 'worker' && process.state !== 'gone').length;
  if (workers >= book.options.limits.workersMax) check.broken('workers-max', `${name}: ${workers} are alive`);
  const wanting = [...book.requests.values()].filter((request) => request.kind === 'place' && request.engine === spawn.engine);
  if (wanting.length === 0) {
    check.broken('spawn-without-cause', `${name}: nobody asks for that engine`);
    return;
  }
  checkBeside(check, name, wanting);
  const isInOrder = spawn.devices.every((device, index) => index === 0 || (spawn.devices[index - 1] ?? '') < device);
  if (!isInOrder || !wanting.some((request) => request.cards === spawn.devices.length)) check.broken('spawn-cards', `${name}: nobody asks for these cards, in this order`);
  for (const device of spawn.devices) if (book.cards.get(device)?.lostSinceUs !== null) check.broken('lost-card', `${name}: ${device} is gone`);
  const isBackingOff = wanting.every((request) => spawn.devices.some((device) => check.event.atUs < (book.loadBackOffs.get(`${device} ${request.model}`)?.untilUs ?? 0)));
  if (isBackingOff) check.broken('back-off', `${name}: all that want it failed there not long ago`);
}

export function checkTerminate(check: Check, terminate: EffectOf<'terminate'>): void {
  const { book } = check;
  const name = `terminate ${terminate.generation} (${terminate.cause})`;
  const process = book.process(terminate.generation);
  if (process === null) {
    check.broken('generation-living', `${name}: it is not alive`);
    return;
  }
  if (process.role !== 'worker') {
    check.broken('holder-terminated', `${name}: a ${process.role} is not ours to end`);
    return;
  }
  if (process.state === 'ending') check.broken('terminated-twice', `${name}: it is already ending`);
  const cause = whyNot(check, process, terminate.cause);
  if (cause !== null) check.broken('terminated-without-cause', `${name}: ${cause}`);
}

/** A worker that says that it ends is none to count on, and gets the grace of every end. */
export function checkEnding(check: Check): void {
  const { book, event } = check;
  if (event.type !== 'process_ending') return;
  const process = book.process(event.generation);
  if (process?.role === 'worker' && process.state !== 'ending') check.broken('ending-ignored', `${event.generation} has said that it ends, and is ${process.state}`);
}

/** Null when the cause holds; else what speaks against it. */
function whyNot(check: Check, process: AuditedProcess, cause: EffectOf<'terminate'>['cause']): string | null {
  const { book } = check;
  const { limits } = book.options;
  const quietUs = book.clock.mostUs - process.heardAttendedUs;
  switch (cause) {
    case 'silent': {
      const limitUs = (limits.heartbeatMissesMax * limits.heartbeatIntervalMs) * 1_000;
      return quietUs < limitUs ? `it was heard ${quietUs} us ago, the limit is ${limitUs}` : null;
    }
    case 'session_lost':
    case 'orphaned':
      return whyNotGivenUp(check, process, cause);
    case 'spawn_timeout':
      if (process.state !== 'spawning') return 'it is ready';
      // Signs of life are no readiness.
      return book.clock.mostUs - process.startedAttendedUs < limits.spawnTimeoutMs * 1_000 ? `it was started ${book.clock.mostUs - process.startedAttendedUs} us ago` : null;
    case 'leaving':
      return check.event.type === 'process_ending' && check.event.generation === process.generation ? null : 'it did not say so';
    case 'idle':
      if (book.leasesOf(process.generation).length > 0) return 'it holds leases';
      return check.event.atUs - process.lastUsefulUs < limits.workerIdleMs * 1_000 ? `it was useful at ${process.lastUsefulUs}` : null;
    case 'evicted':
      return book.leasesOf(process.generation).some((lease) => lease.inFlight > 0) ? 'it has calls inside' : null;
    case 'unawaited':
      return process.state === 'spawning' ? null : 'it is ready';
    case 'card_lost':
      return isOnLost(check, process) ? null : 'none of its cards has been gone for so long';
    case 'load_timeout':
      return book.leasesOf(process.generation).some((lease) => isOverdueLoad(check, lease)) ? null : 'nothing has loaded in it for so long';
    case 'command_failed':
      return hasFailedCommand(check, process) ? null : 'no command to it failed or is overdue';
    case 'host_growth':
      return hasNotGrown(check, process.generation);
    case 'residue':
    case 'misbehaved':
      return isHonest(check, process) && !hangsInMove(check, process) && !claimsTheImpossible(check, process) ? 'it has done what it said' : null;
    case 'shutdown':
      return 'nobody shut the broker down';
  }
}

/** It was given that card, or has strayed there. */
function isOnLost(check: Check, process: AuditedProcess): boolean {
  for (const device of check.book.cards.keys()) {
    const hasIt = process.devices.includes(device) || check.truth.card(device).bytesOf(process.generation) > 0;
    if (hasIt && isLostFor(check, device)) return true;
  }
  // Or it has not been there since this broker began.
  const isOld = check.event.atUs - process.startedAtUs >= check.book.options.limits.cardLostGraceMs * 1_000;
  return isOld && process.onRecord.some((device) => !check.book.cards.has(device));
}

function isLostFor(check: Check, device: string): boolean {
  const sinceUs = check.book.cards.get(device)?.lostSinceUs ?? null;
  return sinceUs !== null && check.event.atUs - sinceUs >= check.book.options.limits.cardLostGraceMs * 1_000;
}

function isOverdueLoad(check: Check, lease: AuditedLease): boolean {
  const isLoading = lease.stage === 'loading' || lease.stage === 'granted';
  return isLoading && check.event.atUs - lease.grantedAtUs >= check.book.options.limits.loadTimeoutMs * 1_000;
}

/** It was told to put something away whole, and has not said for as long as a move may take that it has. */
function hangsInMove(check: Check, process: AuditedProcess): boolean {
  const { book } = check;
  for (const command of book.commands.values()) {
    if (command.generation !== process.generation || command.kind !== 'move' || !command.isWhole || command.answered || command.cancelled) continue;
    if (book.clock.mostUs - command.attendedMaxUs >= book.options.limits.moveTimeoutMs * 1_000) return true;
  }
  return false;
}

function hasFailedCommand(check: Check, process: AuditedProcess): boolean {
  if (process.commandFailures > 0 || process.misbehaviour > 0) return true;
  const { book } = check;
  for (const command of book.commands.values()) {
    if (command.generation !== process.generation) continue;
    const overdueUs = book.clock.mostUs - command.attendedMaxUs;
    if (!command.answered && overdueUs >= book.options.limits.commandAnswerMs * 1_000) return true;
    if (command.answered && (command.kind === 'move' || command.answeredAtUs - command.sentAtUs >= book.options.limits.commandAnswerMs * 1_000)) return true;
  }
  return false;
}

/** In this very step it says of one of its models that it has more on a card than the card is large. */
function claimsTheImpossible({ book, event }: Check, process: AuditedProcess): boolean {
  if (event.type !== 'residency_reported' || event.generation !== process.generation) return false;
  const device = (book.leases.get(event.lease) ?? book.closedLeases.get(event.lease))?.device ?? '';
  return event.residentBytes > (book.cards.get(device)?.totalBytes ?? Infinity);
}

/** By the last reading: all that the process has there (or, where only the total is known, all that anybody has) is explained. */
function isHonest(check: Check, process: AuditedProcess): boolean {
  if (process.misbehaviour > 0 || process.commandFailures > 0 || process.devices.length === 0) return false;
  return [...check.book.cards.keys()].every((device) => isHonestOn(check, process, device));
}

function isHonestOn(check: Check, process: AuditedProcess, device: string): boolean {
  const { book, truth } = check;
  const card = book.cards.get(device);
  if (!process.devices.includes(device)) return (truth.at(device, card?.sample?.takenAtUs ?? 0)?.byProcess.get(process.generation) ?? 0) === 0;
  if (card === undefined || card.confirms === 'none' || card.sample === null) return false;
  const toleranceBytes = book.options.limits.measureToleranceBytes;
  if (card.confirms === 'total') return card.sample.usedBytes <= explainedBytes(check, card.device, null) + toleranceBytes;
  const sampledBytes = truth.at(card.device, card.sample.takenAtUs)?.byProcess.get(process.generation) ?? 0;
  return sampledBytes <= explainedBytes(check, card.device, process.generation) + toleranceBytes;
}

function explainedBytes(check: Check, device: string, generation: string | null): number {
  let bytes = 0;
  for (const lease of check.book.leases.values()) if (lease.device === device && (generation ?? lease.generation) === lease.generation) bytes += lease.residentBytes;
  for (const process of check.book.processes.values()) if (isOn(process, device) && (generation ?? process.generation) === process.generation) bytes += floorOn(process, device);
  return bytes;
}

/** Nobody is blamed for what was promised to it when the reading was taken: that of a load may be taken at its top, and arrive after its end. */
export function checkStray(check: Check, generation: string, device: string): void {
  const { book, truth, event } = check;
  const card = book.cards.get(device);
  if (event.type !== 'sampled' || card === undefined || card.sample === null) return;
  const { takenAtUs } = card.sample;
  const sampled = truth.at(device, takenAtUs);
  if (sampled === null) return;
  let promisedBytes = 0;
  for (const lease of book.leasesOf(generation)) {
    if (lease.device === device) promisedBytes += lease.loadedAtUs > takenAtUs ? Math.max(lease.promiseBytes, lease.loadPromiseBytes) : lease.promiseBytes;
  }
  const sampledBytes = sampled.byProcess.get(generation) ?? 0;
  if (promisedBytes > 0 && sampledBytes <= promisedBytes) check.broken('blamed-wrongly', `${generation} had ${sampledBytes} on ${device} at the reading, and ${promisedBytes} were promised to it`);
}

/** Only who holds a lease there is told of, and only what the driver has said to be in host memory. */
export function checkSpilled(check: Check, generation: string, device: string): void {
  const { book, event } = check;
  const spilled = event.type === 'sampled' && event.device === device && (event.spilled ?? []).some((one) => one.generation === generation && one.spilledBytes > 0);
  const leased = book.leasesOf(generation).some((lease) => lease.device === device);
  if (!spilled || !leased) check.broken('blamed-wrongly', `${generation} is told of for bytes in host memory that ${spilled ? 'no lease of it is about' : `no reading of ${device} shows`}`);
}
