/** Who gives way to strangers, and when: on a reading that tells them from ours, when they have grown and need it, and never those that came after them. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { Book } from './book.js';
import type { Check, Truth } from './check.js';
import { floorsBytes, knownRoomBytes } from './known-room.js';
import type { AuditedCard, AuditedLease } from './records.js';
import { strangersThen } from './strangers.js';

const strangersKept = 2_000;

/** What strangers had when the reading was taken; what the dead have not given back passes for theirs once nobody waits for it. */
export function noteStrangers(book: Book, truth: Truth, event: Extract<CoreEvent, { type: 'sampled' }>): void {
  const card = book.cards.get(event.device);
  const bytes = strangersThen(book, truth, event.device, event.takenAtUs);
  if (card === undefined || card.yieldFreeBytes === null || event.processes === null || bytes === null) return;
  const sampled = truth.at(event.device, event.takenAtUs);
  const dead = [...sampled?.byProcess ?? []].filter(([generation]) => book.processes.get(generation)?.state === 'gone');
  card.strangers.push({ atUs: event.atUs, bytes: Math.max(0, bytes + dead.reduce((sum, [, deadBytes]) => sum + deadBytes, 0) - (sampled?.hiddenBytes ?? 0)) });
  if (card.strangers.length > strangersKept) card.strangers.shift();
}

/** The record of this step by which the lease gives way to strangers. */
export function isForStrangers(check: Check, lease: AuditedLease): boolean {
  return yieldRecords(check).some(({ victims }) => victims.some((victim) => victim.lease === lease.lease && victim.passedOver === null));
}

function yieldRecords({ effects, records }: Check): ExplainRecord[] {
  const devices = effects.flatMap((effect) => (effect.type === 'publish' && effect.name === 'yielded' ? [String(effect.data['device'])] : []));
  return [...records.values()].filter(({ verdict, request, generation, device }) => verdict === 'evicting' && request === null && generation === '' && device !== null && devices.includes(device));
}

export function checkYielded(check: Check, device: string): void {
  const { book } = check;
  const name = `${device} gives way to strangers`;
  const card = book.cards.get(device);
  if (card === undefined || card.yieldFreeBytes === null) {
    check.broken('yield-unasked', `${name}: nobody wants it to`);
    return;
  }
  if (card.confirms !== 'process' || card.sample?.hasFigures !== true || card.missing !== null) check.broken('yield-blind', `${name}: the last reading does not tell strangers from ours`);
  checkGrown(check, name, card);
  const ids = yieldRecords(check).filter((record) => record.device === device).flatMap(({ victims }) => victims.flatMap(({ lease, passedOver }) => (lease === null || passedOver !== null ? [] : [lease])));
  const victims = ids.flatMap((id) => book.leases.get(id) ?? []);
  for (const victim of victims) checkGivesWay(check, name, card, victim);
  checkNeeded(check, name, card, card.yieldFreeBytes, victims);
}

/** Nobody gives way when so much is free, or on its way, without the smallest of them. */
function checkNeeded(check: Check, name: string, card: AuditedCard, wantedBytes: number, victims: readonly AuditedLease[]): void {
  const { book } = check;
  const knownBytes = knownRoomBytes(check, card.device);
  if (knownBytes === null) return;
  const here = victims.filter(({ device }) => device === card.device).map((lease) => Math.min(lease.residentBytes, lease.promiseBytes));
  const othersBytes = here.reduce((sum, bytes) => sum + bytes, 0) - Math.min(...here, Infinity);
  const haveBytes = knownBytes + comingBytes(check, card.device) + Math.max(0, here.length > 0 ? othersBytes : 0);
  const toleranceBytes = book.options.limits.measureToleranceBytes * (1 + book.leases.size);
  if (haveBytes >= wantedBytes + toleranceBytes + floorsBytes(check, card.device)) check.broken('yield-needless', `${name}: ${haveBytes} are free or coming without the last of ${victims.length} victims, and ${wantedBytes} are for them`);
}

/** Of what was told to leave and has not answered. */
function comingBytes({ book }: Check, device: string): number {
  let bytes = 0;
  for (const command of book.commands.values()) {
    const lease = command.kind !== 'move' || command.when === 'drained' || command.answered || command.settled || command.cancelled ? undefined : book.leases.get(command.lease ?? '');
    if (lease?.device === device) bytes += Math.min(command.freesBytes, lease.residentBytes);
  }
  return bytes;
}

/** They have more than they once had. */
function checkGrown(check: Check, name: string, { strangers }: AuditedCard): void {
  const least = strangers.reduce((bytes, reading) => Math.min(bytes, reading.bytes), Infinity);
  const now = strangers.at(-1)?.bytes ?? 0;
  if (now <= least + check.book.options.limits.measureToleranceBytes) check.broken('yield-unpressed', `${name}: they have ${now}, and never had less than ${least}`);
}

function checkGivesWay(check: Check, name: string, card: AuditedCard, lease: AuditedLease): void {
  const id = lease.lease;
  if (check.book.isPinned(lease)) check.broken('victim-pinned', `${name}: ${id} (${lease.model}) is pinned`);
  if (lease.queued > 0 && lease.stage === 'resident') check.broken('victim-in-use', `${name}: ${id} (${lease.model}) has ${lease.queued} queued`);
  if (lease.device !== card.device) return;
  if (!haveGrownSince(card, lease.grantedAtUs)) check.broken('yield-newcomer', `${name}: ${id} (${lease.model}) was granted after they had last grown`);
}

/** After that moment they had more, at some reading, than at one before it. */
function haveGrownSince({ strangers }: AuditedCard, sinceUs: number): boolean {
  let least = strangers.filter(({ atUs }) => atUs <= sinceUs).at(-1)?.bytes ?? 0;
  for (const { atUs, bytes } of strangers) {
    if (atUs <= sinceUs) continue;
    if (bytes > least) return true;
    least = bytes;
  }
  return false;
}
