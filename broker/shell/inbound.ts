/** What an admitted peer says, turned into events of the core: one row a message, nothing decided here. */
import { LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import type { CommandAnswer } from '../core/events.js';
import type { UntimedEvent } from './loop.js';

type Of<T extends ControlMessage['type']> = Extract<ControlMessage, { type: T }>;

/** The event that a message is, or null when the message is not for the core. */
export function toEvent(generation: string, message: ControlMessage): UntimedEvent | null {
  switch (message.type) {
    case 'heartbeat':
      return { type: 'heartbeat', generation, reserved: message.reserved };
    case 'floor':
      return { type: 'floor_measured', generation, device: message.device, bytes: message.bytes };
    case 'ending':
      return { type: 'process_ending', generation, reason: message.reason };
    case 'ready':
      return { type: 'process_ready', generation, capabilities: message.capabilities, floors: message.floors };
    case 'place':
      return placeRequested(generation, message);
    case 'request_vram_budget':
      return budgetRequested(generation, message);
    case 'cancel':
      return { type: 'request_cancelled', generation, request: message.target };
    case 'loading':
      return { type: 'load_begun', generation, lease: message.lease };
    case 'residency':
      return residencyReported(generation, message);
    case 'in_use':
      return { type: 'use_reported', generation, lease: message.lease, seq: message.seq, inFlight: message.inFlight, queued: message.queued };
    case 'resize_lease':
      return { type: 'resize_requested', generation, request: message.id, lease: message.lease, parts: message.parts, ...(message.also === undefined ? {} : { also: message.also }) };
    case 'release_lease':
      return { type: 'lease_released', generation, lease: message.lease, cause: message.cause, failure: message.failure };
    case 'evict':
      return { type: 'evict_requested', generation, request: message.id, model: message.model, target: message.target, deadlineMs: message.deadlineMs };
    case 'pin':
      return { type: 'pin_requested', generation, request: message.id, model: message.model, pinned: message.pinned };
    default:
      return null;
  }
}

function placeRequested(generation: string, message: Of<'place'>): UntimedEvent {
  return {
    type: 'place_requested', generation, request: message.id, model: message.model, engine: message.engine,
    estimateBytes: message.estimateBytes, class: message.class, deadlineMs: message.deadlineMs, ageMs: message.ageMs ?? 0,
    device: message.device, policy: message.policy,
    ...(message.devices === undefined ? {} : { devices: message.devices }), ...(message.cards === undefined ? {} : { cards: message.cards }),
  };
}

function budgetRequested(generation: string, message: Of<'request_vram_budget'>): UntimedEvent {
  return {
    type: 'budget_requested', generation, request: message.id, model: message.model, device: message.device, lease: message.lease,
    parts: message.parts, peakBytes: message.peakBytes, class: message.class, deadlineMs: message.deadlineMs,
    ageMs: message.ageMs ?? 0, parkable: message.parkable, profilesFreeMemory: message.profilesFreeMemory, source: message.source,
    policy: message.policy, gang: message.gang, ...(message.host === undefined ? {} : { host: message.host }),
  };
}

function residencyReported(generation: string, message: Of<'residency'>): UntimedEvent {
  return {
    type: 'residency_reported', generation, request: message.id, lease: message.lease, model: message.model, seq: message.seq,
    state: message.state, residentBytes: message.residentBytes, hostBytes: message.hostBytes, parts: message.parts, loadMs: message.loadMs,
  };
}

/** An answer to a command, in the core's words. Anything else a peer may answer counts as a failure of the move. */
export function toAnswer(message: ControlMessage): CommandAnswer {
  switch (message.type) {
    case 'done':
      return { kind: 'done', target: message.target, freedBytes: message.freedBytes, residentBytes: message.residentBytes, hostBytes: message.hostBytes };
    case 'draining':
      return { kind: 'draining', inFlight: message.inFlight };
    case 'busy':
      return { kind: 'busy', inFlight: message.inFlight };
    case 'unsupported':
      return { kind: 'unsupported', message: message.message };
    case 'failed':
      return { kind: 'failed', code: message.code, message: message.message, residentBytes: message.residentBytes };
    default:
      return { kind: 'failed', code: 'move_failed', message: `answered ${message.type}`, residentBytes: null };
  }
}

/** A command that ended in an error instead of an answer; null when the connection went: the exit tells then. */
export function errorToAnswer(error: unknown): CommandAnswer | null {
  const typed = LeaseholdError.from(error);
  if (typed.code === 'connection_lost') return null;
  return { kind: 'failed', code: typed.code, message: typed.message, residentBytes: null };
}
