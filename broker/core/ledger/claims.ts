/**
 * The door of the core for figures. What a process says of bytes is a claim;
 * one that no card could hold is not taken in: it is counted, explained, cut
 * down to what the card has, and a worker that made it is ended as broken.
 * Holders are never ended by us (D7). The ledger bounds its sums itself
 * (bounds.ts): claims that are possible one by one may not be so together.
 */
import type { LeasePart, ModelState } from '../../../protocol/index.js';
import type { CommandAnswer, CoreEvent, RefusedFigure } from '../events.js';
import { cardBytesMax, claimBytesMax } from './bounds.js';
import { cardOf } from '../must.js';
import { endMisbehaving } from '../processes/process.js';
import { count, explain, inWords } from '../report.js';
import type { Card, Core, Lease } from '../state.js';

type Of<T extends CoreEvent['type']> = Extract<CoreEvent, { type: T }>;
type Figure = { readonly device: string; readonly bytes: number };

/** The event with every figure in it within what is possible; the same object when nothing was wrong. */
export function believable(core: Core, event: CoreEvent): CoreEvent {
  switch (event.type) {
    case 'card_added': return event.totalBytes > cardBytesMax ? { ...event, totalBytes: cardBytesMax } : event;
    case 'sampled': return believableSample(core, event);
    case 'process_ready': return fits(core, event.floors) ? event : { ...event, floors: figures(core, event.generation, 'floor', event.floors) };
    case 'heartbeat': return believableHeartbeat(core, event);
    case 'floor_measured': {
      const [figure] = fits(core, [event]) ? [event] : figures(core, event.generation, 'floor', [event]);
      return { ...event, bytes: figure?.bytes ?? 0 };
    }
    case 'residency_reported': return believableResidency(core, event);
    case 'command_answered': return believableAnswer(core, event);
    case 'models_announced': return believableModels(core, event);
    default: return event;
  }
}

/** A process's bytes on one card, and the most that can be. */
class Claims {
  refused: RefusedFigure | null = null;
  constructor(private readonly core: Core, private readonly generation: string, private readonly device: string, private readonly mostBytes: number) {}

  bytes(what: string, bytes: number, mostBytes = this.mostBytes): number {
    if (isWithin(bytes, mostBytes)) return bytes;
    if (this.refused === null) refuse(this.core, this.generation, `${what} of ${inWords(bytes)} on ${this.device}, where ${inWords(mostBytes)} is the most there can be`);
    this.refused ??= { field: what, bytes, mostBytes };
    return bytes > 0 ? mostBytes : 0;
  }

  /** Parts, each and together; what goes beyond is cut off the last. */
  parts(parts: readonly LeasePart[]): readonly LeasePart[] {
    let leftBytes = this.mostBytes;
    return parts.map((part) => {
      const bytes = Math.min(this.bytes(`a part ${part.name}`, part.bytes, leftBytes), leftBytes);
      leftBytes -= bytes;
      return bytes === part.bytes ? part : { ...part, bytes };
    });
  }
}

function isWithin(bytes: number, mostBytes: number): boolean {
  return Number.isSafeInteger(bytes) && bytes >= 0 && bytes <= mostBytes;
}

function fits(core: Core, figures: readonly Figure[]): boolean {
  return figures.every(({ device, bytes }) => isWithin(bytes, mostOn(core, device)));
}

/** What a driver spills is reserved as well, and no lie. */
function believableHeartbeat(core: Core, event: Of<'heartbeat'>): CoreEvent {
  const reserved = event.reserved.filter(({ device, bytes }) => cardOf(core, device)?.spills !== true || !isWithin(bytes, cardBytesMax));
  return fits(core, reserved) ? event : { ...event, reserved: figures(core, event.generation, 'reserved memory', reserved) };
}

/** A false floor of a worker is left out, so that nobody learns from it; its bytes are seen by the driver, and it is ended. */
function figures(core: Core, generation: string, what: string, claimed: readonly Figure[]): Figure[] {
  const isWorker = core.processes.get(generation)?.role === 'worker';
  const kept: Figure[] = [];
  for (const { device, bytes } of claimed) {
    const believed = new Claims(core, generation, device, mostOn(core, device)).bytes(`a ${what}`, bytes);
    if (believed === bytes || !isWorker) kept.push({ device, bytes: believed });
  }
  return kept;
}

function believableResidency(core: Core, event: Of<'residency_reported'>): CoreEvent {
  const lease = core.leases.get(event.lease);
  if (lease?.generation !== event.generation) return event;
  const claims = new Claims(core, event.generation, lease.device, mostOn(core, lease.device));
  const residentBytes = claims.bytes(`${lease.model} resident`, event.residentBytes);
  const hostBytes = claims.bytes(`a host copy of ${lease.model}`, event.hostBytes, mostInMemory(core, lease));
  const parts = event.parts === null ? null : claims.parts(event.parts);
  return { ...event, residentBytes, hostBytes, parts, ...(claims.refused === null ? {} : { refused: claims.refused }) };
}

function believableAnswer(core: Core, event: Of<'command_answered'>): CoreEvent {
  const command = core.commands.get(event.command);
  const lease = command?.generation === event.generation && command.lease !== null ? core.leases.get(command.lease) : undefined;
  if (lease === undefined) return event;
  const claims = new Claims(core, event.generation, lease.device, mostOn(core, lease.device));
  const answer = believableFigures(claims, event.answer, lease.model, mostInMemory(core, lease));
  // What a worker that is being ended for it says was done, was not.
  if (claims.refused !== null && core.processes.get(event.generation)?.role === 'worker') return { ...event, answer: { kind: 'failed', code: 'move_failed', message: 'its answer is not believed', residentBytes: null } };
  return { ...event, answer };
}

function believableFigures(claims: Claims, answer: CommandAnswer, model: string, mostHostBytes: number): CommandAnswer {
  const resident = `${model} resident`;
  if (answer.kind === 'failed') return { ...answer, residentBytes: answer.residentBytes === null ? null : claims.bytes(resident, answer.residentBytes) };
  if (answer.kind !== 'done') return answer;
  return {
    ...answer,
    // Judged by what was held (eviction/answers.ts): it is no claim to bytes of the card.
    freedBytes: Math.min(answer.freedBytes, cardBytesMax),
    residentBytes: claims.bytes(resident, answer.residentBytes),
    hostBytes: claims.bytes(`a host copy of ${model}`, answer.hostBytes, mostHostBytes),
  };
}

function believableModels(core: Core, event: Of<'models_announced'>): CoreEvent {
  const first = core.processes.get(event.generation)?.devices[0] ?? null;
  const models = event.models.map((state): ModelState => {
    const named = core.leases.get(state.lease ?? '');
    const own = named?.generation === event.generation ? named : undefined;
    const device = own?.device ?? state.device ?? first ?? '';
    const claims = new Claims(core, event.generation, device, mostOn(core, device));
    return { ...state, residentBytes: claims.bytes(`${state.model} resident`, state.residentBytes), hostBytes: claims.bytes(`a host copy of ${state.model}`, state.hostBytes, mostInMemory(core, own)) };
  });
  return { ...event, models };
}

/** A driver that says of one process what cannot be is believed of none in that reading: its total may be right, and who has it is unknown. A total beyond the card is cut down to it. */
function believableSample(core: Core, event: Of<'sampled'>): CoreEvent {
  const mostBytes = mostOn(core, event.device);
  const isWild = [...event.processes ?? [], ...event.strangers ?? []].some(({ usedBytes }) => !isWithin(usedBytes, mostBytes));
  if (!isWild && !(event.usedBytes > mostBytes)) return event;
  count(core, 'claimsRefused');
  // What contradicts itself stays so, and is no reading at all.
  const usedBytes = event.usedBytes > event.totalBytes ? event.usedBytes : Math.min(event.usedBytes, mostBytes);
  return isWild ? { ...event, usedBytes, processes: null, strangers: [] } : { ...event, usedBytes };
}

/** The most bytes that one process can hold there; a card that is not known bounds nothing but the count itself. */
function mostOn(core: Core, device: string): number {
  const card: Card | undefined = cardOf(core, device);
  return card === undefined ? cardBytesMax : claimBytesMax(card);
}

/** The most that a copy can be; without a ledger of the machine's memory only the count itself bounds it. */
function mostInMemory(core: Core, lease: Lease | undefined): number {
  // What was believed before stays so, should the machine have become smaller.
  return core.host === null ? cardBytesMax : Math.max(core.host.totalBytes, lease?.hostBytes ?? 0);
}

function refuse(core: Core, generation: string, claim: string): void {
  const process = core.processes.get(generation);
  count(core, 'claimsRefused');
  if (process === undefined) return;
  const why = `it claims ${claim}`;
  explain(core, { verdict: 'overshoot', text: `${generation} is not believed: ${why}`, generation });
  endMisbehaving(core, process, why);
}
