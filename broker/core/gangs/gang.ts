/**
 * Gangs: leases of one model that come and go together, a card each, and the
 * requests from which they are formed. A gang takes its cards in the order of
 * their UUIDs, one forming gang a card, so that no two ever wait for each other.
 */
import { must } from '../must.js';
import { goesBefore } from '../requests/queue.js';
import type { Core, Gang, GangRefusal, Lease, Process, Waiter } from '../state.js';

/** Refusals kept of one process: more than can be on the wire at a time. */
const refusalsMax = 64;

export function gangKey(generation: string, name: string): string {
  return `${generation} ${name}`;
}

/** No requester can call a gang of its own so. */
export function placementKey(generation: string, request: number): string {
  return `${generation}#${String(request)}`;
}

/** The leases that go where this one goes, itself among them; one that is alone is its own only companion. */
export function companions(core: Core, lease: Lease): readonly Lease[] {
  if (lease.gang === null) return [lease];
  const found: Lease[] = [];
  for (const id of core.processes.get(lease.generation)?.models.get(lease.model)?.leases ?? []) {
    const other = core.leases.get(id);
    if (other?.gang === lease.gang) found.push(other);
  }
  return found.length > 0 ? found : [lease];
}

export function isComplete(gang: Gang): boolean {
  return gang.members.size === gang.size;
}

/** Its requests, in the order of their cards' UUIDs. */
export function membersOf(core: Core, gang: Gang): Waiter[] {
  return devicesOf(gang).map((device) => {
    const waiter = core.waiters.get(gang.members.get(device) ?? '');
    must(waiter !== undefined, `every member of gang ${gang.key} is an open request`);
    return waiter;
  });
}

export function devicesOf(gang: Gang): string[] {
  return [...gang.members.keys()].sort();
}

/** Every gang takes its cards in order, as far as no other that goes before has them; one that others already make room for goes first. */
export function assignCards(core: Core): void {
  const taken = new Map<string, string>();
  for (const gang of inTurn(core)) {
    const devices = devicesOf(gang);
    const free = devices.findIndex((device) => taken.has(device));
    for (const device of free < 0 ? devices : devices.slice(0, free)) taken.set(device, gang.key);
    setForming(core, gang, free < 0);
  }
  for (const card of core.cards.values()) {
    const forming = taken.get(card.device) ?? null;
    if (forming === card.forming) continue;
    card.forming = forming;
    core.dirty.add(card.device);
  }
}

/** What it keeps on any of its cards depends on whether it has all of them. */
function setForming(core: Core, gang: Gang, forming: boolean): void {
  if (forming === gang.forming) return;
  gang.forming = forming;
  for (const device of gang.members.keys()) core.dirty.add(device);
}

function inTurn(core: Core): Gang[] {
  const complete = [...core.gangs.values()].filter(isComplete).map((gang) => {
    const members = membersOf(core, gang);
    return { gang, first: members[0], planned: members.some((member) => member.planned) };
  });
  complete.sort((a, b) => {
    if (a.planned !== b.planned) return a.planned ? -1 : 1;
    return a.first !== undefined && b.first !== undefined && goesBefore(core, a.first, b.first) ? -1 : 1;
  });
  return complete.map(({ gang }) => gang);
}

/** The gang is over: formed, or not to be formed for a reason that late members are told. */
export function endGang(core: Core, gang: Gang, refusal: GangRefusal | null): void {
  core.gangs.delete(gang.key);
  for (const card of core.cards.values()) if (card.forming === gang.key) card.forming = null;
  const process = core.processes.get(gang.generation);
  if (refusal !== null && process !== undefined && gang.name !== null) noteRefused(process, gang.name, refusal);
}

export function noteRefused(process: Process, name: string, refusal: GangRefusal): void {
  process.gangsOver.set(name, refusal);
  if (process.gangsOver.size <= refusalsMax) return;
  for (const oldest of process.gangsOver.keys()) {
    process.gangsOver.delete(oldest);
    return;
  }
}

/** The process and all that it asks for is gone: nobody is to be told. */
export function forgetGangs(core: Core, generation: string): void {
  for (const gang of [...core.gangs.values()]) if (gang.generation === generation) endGang(core, gang, null);
}

/** Why a gang ends when nobody refused it. */
export function gangBroken(gang: Pick<Gang, 'model' | 'size'>, reason: string): GangRefusal {
  return {
    code: 'gang_broken', details: { model: gang.model, size: String(gang.size), reason },
    text: `${gang.model} gets its ${String(gang.size)} cards together or not at all: ${reason}`,
  };
}

/** A lease has ended: what is left of its gang is of no use, and is unloaded unless its owner gives it back by itself. */
export function strandRest(core: Core, lease: Lease): void {
  core.stranded.delete(lease.id);
  if (lease.gang === null) return;
  for (const other of companions(core, lease)) if (other !== lease && !core.stranded.has(other.id)) core.stranded.set(other.id, core.attendedUs);
}
