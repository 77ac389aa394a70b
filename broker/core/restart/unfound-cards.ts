/**
 * Cards that processes of an earlier broker are on and this broker has not found: as good as lost. One that is found
 * later is closed until each of them has said what it holds there, those included that have said all the rest.
 */
import { inMs } from '../clock.js';
import { closeCard } from './closed-cards.js';
import { floorReported } from '../ledger/floors.js';
import { askModels } from '../ledger/lease-events.js';
import { count } from '../report.js';
import type { Card, Core, Process } from '../state.js';

/** Those of its cards that are not there are waited for like any that is lost. */
export function awaitCards(core: Core, process: Process): void {
  for (const device of process.devices) {
    if (core.cards.has(device) || core.timers.has('card_lost', device)) continue;
    core.timers.set('card_lost', device, inMs(core, core.options.limits.cardLostGraceMs));
  }
}

/** What a process says that it takes on a card: kept until the card is found. */
export function reportFloor(core: Core, process: Process, device: string, bytes: number): void {
  const card = core.cards.get(device);
  if (card !== undefined) floorReported(core, card, process.generation, process.engine, bytes);
  else if (process.devices.includes(device)) process.floorsUnfound.set(device, { bytes, isTold: true });
  else count(core, 'strayEvents');
}

export function reportFloors(core: Core, process: Process, floors: readonly { readonly device: string; readonly bytes: number }[]): void {
  for (const { device, bytes } of floors) reportFloor(core, process, device, bytes);
}

/** It is there now. */
export function onCardFound(core: Core, card: Card): void {
  core.timers.drop('card_lost', card.device);
  for (const process of core.processes.values()) if (process.devices.includes(card.device)) askAgain(core, card, process);
}

function askAgain(core: Core, card: Card, process: Process): void {
  const floor = process.floorsUnfound.get(card.device);
  closeCard(core, card, process, floor?.bytes ?? 0);
  // Its own word, as good as if the card had been there.
  if (floor?.isTold === true) floorReported(core, card, process.generation, process.engine, floor.bytes);
  process.floorsUnfound.delete(card.device);
  process.returning = true;
  if (process.state === 'ready' || process.state === 'suspect') process.state = 'recorded';
  if (process.state !== 'recorded' || !process.sessionOpen) return;
  core.timers.set('detached', process.generation, inMs(core, core.options.limits.moveTimeoutMs));
  askModels(core, process.generation);
}
