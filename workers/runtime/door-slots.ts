/** Which queued call may begin on which open context, and when a further or larger context is worth asking for. Pure. */
import type { Door, DoorAction, DoorCall, Failure, FirstContext, Slot } from './door-types.js';

/** The next context name; never used twice under one lease, so that a part of it names one context for ever. */
function nextContextName(door: Door): string {
  door.contextsNamed += 1;
  return `context:${String(door.contextsNamed)}`;
}

/** The context to open with the model: as large as the largest call that waits wants it. */
export function firstContext(door: Door): FirstContext {
  const tokens = door.queue.length === 0 ? door.contextTokens : Math.max(...door.queue.map((call) => call.tokens));
  return { name: nextContextName(door), tokens };
}

/** Tokens of the largest context that will go on taking calls. */
export function largestTokens(door: Door): number {
  return Math.max(-1, ...door.slots.filter((slot) => !slot.retiring).map((slot) => slot.tokens));
}

/** Begins every queued call that may: oldest first, behind a shut door only the eligible ones. */
export function beginCalls(door: Door, out: DoorAction[]): void {
  const eligible = door.underway?.phase === 'draining' ? door.underway.eligible : null;
  door.queue = door.queue.filter((call) => {
    if (eligible !== null && !eligible.has(call.id)) return true;
    const slot = call.needs === 'model' ? null : freeSlot(door, call);
    if (slot === undefined) return true;
    if (slot !== null) occupy(door, slot, call);
    door.begun.set(call.id, slot?.name ?? null);
    out.push({ type: 'begin', call: call.id, slot: slot?.name ?? null });
    return false;
  });
}

/**
 * A free context that is large enough: the one whose last call began like this one, else the smallest, and of equal ones
 * that which has lain idle longest, so that nobody's beginning is thrown away before its time. Undefined when there is none.
 */
function freeSlot(door: Door, { tokens, topic = null }: DoorCall): Slot | undefined {
  const free = door.slots.filter((slot) => slot.call === null && !slot.retiring && slot.tokens >= tokens);
  const known = topic === null ? undefined : free.find((slot) => slot.topic === topic);
  return known ?? free.sort((left, right) => left.tokens - right.tokens)[0];
}

/** Slots stand in the order of their last use, the latest at the end. */
function occupy(door: Door, slot: Slot, { id, topic = null }: DoorCall): void {
  slot.call = id;
  slot.topic = topic;
  door.slots = [...door.slots.filter((each) => each !== slot), slot];
}

/**
 * Decides whether to ask for a context, in this order:
 * 1. One change at a time: while one is on its way nothing else is planned, and one that nobody needs any more is taken back.
 * 2. A call that no open context could ever serve gets one of its size (D17): beside the others when `parallel`
 *    allows, else in place of the smallest, which takes no new call and goes when the larger one has been granted.
 * 3. A call that only has to wait its turn gets one when `parallel` allows, it has waited a little, and none was
 *    refused a moment ago.
 */
export function planGrowth(door: Door, lease: string, atUs: number, out: DoorAction[]): void {
  const blocked = door.queue.find((call) => call.needs === 'slot');
  const largest = largestTokens(door);
  const bigger = door.queue.find((call) => call.needs === 'slot' && call.tokens > largest);
  if (door.growing !== null) {
    takeBackUnneeded(door, blocked, bigger, out);
    return;
  }
  const wanted = bigger ?? blocked;
  if (wanted === undefined) return;
  const room = door.slots.length < door.parallel;
  if (bigger === undefined && (!room || atUs < mayGrowAtUs(door, wanted))) return;
  if (room) {
    askContext(door, lease, { tokens: wanted.tokens, required: bigger !== undefined, replaces: [] }, out);
  } else {
    retireSmallest(door, wanted.tokens, []);
    askWhenRetired(door, lease, out);
  }
}

/** When a further context may be asked for, for a call that only waits its turn. */
export function mayGrowAtUs(door: Door, call: DoorCall): number {
  return Math.max(door.growNotBeforeUs, call.arrivedAtUs + door.options.growAfterUs);
}

function takeBackUnneeded(door: Door, blocked: DoorCall | undefined, bigger: DoorCall | undefined, out: DoorAction[]): void {
  const { growing } = door;
  if (growing?.phase === 'retiring') {
    const largest = Math.max(...door.slots.map((slot) => slot.tokens));
    if (!door.queue.some((call) => call.needs === 'slot' && call.tokens > largest)) stopRetiring(door);
  } else if (growing?.phase === 'asking' && (growing.required ? bigger : blocked) === undefined) {
    withdrawContext(door, out);
  }
}

/** Takes an open request for a context back; its end is told as `context_refused`, or as opened if it was too late. */
export function withdrawContext(door: Door, out: DoorAction[]): void {
  if (door.growing?.phase !== 'asking' || door.growing.withdrawn) return;
  door.growing = { ...door.growing, withdrawn: true };
  out.push({ type: 'withdraw_context' });
}

/** The slots that were to make room take calls again. */
export function stopRetiring(door: Door): void {
  if (door.growing?.phase !== 'retiring') return;
  for (const slot of door.slots) slot.retiring = false;
  door.growing = null;
}

function askContext(door: Door, lease: string, wanted: { readonly tokens: number; readonly required: boolean; readonly replaces: readonly string[] }, out: DoorAction[]): void {
  const name = nextContextName(door);
  door.growing = { phase: 'asking', name, ...wanted, withdrawn: false };
  out.push({ type: 'ask_context', lease, name, ...wanted });
}

/** One slot more is to make room, the smallest of the others; an idle one before a busy one. False: all do already. */
function retireSmallest(door: Door, tokens: number, besides: readonly string[]): boolean {
  const [smallest] = door.slots
    .filter(({ name }) => !besides.includes(name))
    .sort((left, right) => left.tokens - right.tokens || Number(left.call !== null) - Number(right.call !== null));
  if (smallest === undefined) return false;
  smallest.retiring = true;
  door.growing = { phase: 'retiring', slots: [...besides, smallest.name], tokens };
  return true;
}

/** Asks for the larger context once the calls on those that it replaces have ended. They stay open until it is granted. */
export function askWhenRetired(door: Door, lease: string, out: DoorAction[]): void {
  const { growing } = door;
  if (growing?.phase !== 'retiring') return;
  if (door.slots.some(({ name, call }) => call !== null && growing.slots.includes(name))) return;
  askContext(door, lease, { tokens: growing.tokens, required: true, replaces: growing.slots }, out);
}

export function contextOpened(door: Door, name: string, tokens: number): void {
  const replaced = door.growing?.phase === 'asking' ? door.growing.replaces : [];
  door.growing = null;
  // Nobody's beginning is in it: before all others, when it is one of the smallest.
  door.slots = [{ name, tokens, call: null, topic: null, retiring: false }, ...door.slots.filter((slot) => !replaced.includes(slot.name))];
}

/**
 * A refused context costs the calls that cannot run without it their answer,
 * unless one more open context can make room for it. Others wait on, and what
 * is open serves them as before.
 */
export function contextRefused(door: Door, failure: Failure, closed: readonly string[], atUs: number, out: DoorAction[]): void {
  const { growing } = door;
  door.growing = null;
  door.slots = door.slots.filter(({ name }) => !closed.includes(name));
  const mayTryMore = growing?.phase === 'asking' && growing.required && !growing.withdrawn && door.underway === null;
  if (mayTryMore && retireSmallest(door, growing.tokens, growing.replaces.filter((name) => !closed.includes(name)))) return;
  for (const slot of door.slots) slot.retiring = false;
  if (growing?.phase !== 'asking' || growing.withdrawn) return;
  door.growNotBeforeUs = atUs + door.options.growPauseUs;
  if (!growing.required || door.underway !== null) return;
  failCalls(door, (call) => call.needs === 'slot' && call.tokens >= growing.tokens, failure, out);
}

/** Ends the queued calls that match with a typed error. */
export function failCalls(door: Door, matches: (call: DoorCall) => boolean, failure: Failure, out: DoorAction[]): void {
  const calls = door.queue.filter(matches).map((call) => call.id);
  if (calls.length === 0) return;
  door.queue = door.queue.filter((call) => !matches(call));
  out.push({ type: 'fail', calls, failure });
}
