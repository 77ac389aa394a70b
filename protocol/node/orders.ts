/** What the broker says to who holds leases, worker or holder: one method an order, and a refusal of what neither serves. */
import { LeaseholdError } from '../errors.js';
import type { ControlMessage } from '../messages/control.js';
import { monotonicUs } from './clock.js';
import { errorMessage } from './wire-error.js';

type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;

export interface Orders {
  move(order: Control<'model_to_device'>): void;
  trim(order: Control<'trim_host'>): void;
  /** Takes back the order of that id. */
  cancel(id: number): void;
  /** Called in a turn of its own: a grant that came just before may still be on its way to who asked for it. */
  recall(order: Control<'recall_lease'>): void;
  list(order: Control<'list_models'>): void;
  drain(order: Control<'drain'>): void;
  shutdown(order: Control<'shutdown'>): void;
  refuse(error: Control<'error'>): void;
}

export function takeOrder(message: ControlMessage, role: 'worker' | 'holder', orders: Orders): void {
  switch (message.type) {
    case 'model_to_device': orders.move(message); return;
    case 'trim_host': orders.trim(message); return;
    case 'cancel': orders.cancel(message.target); return;
    case 'recall_lease': setImmediate(() => { orders.recall(message); }); return;
    case 'list_models': orders.list(message); return;
    case 'drain': orders.drain(message); return;
    case 'shutdown': orders.shutdown(message); return;
    default: {
      if (!('id' in message) || message.id === null) return;
      const error = new LeaseholdError('message_unexpected', { type: message.type, reason: `a ${role} does not serve it` });
      orders.refuse(errorMessage('control', message.id, error) as Control<'error'>);
    }
  }
}

type Expiring = Pick<Control<'model_to_device'>, 'sentUs' | 'expiresMs'>;
type Commanded = Expiring & Pick<Control<'model_to_device'>, 'id' | 'generation' | 'lease' | 'model'>;

/** When a command is to be begun no more. Counted from its sending, however long it lay before it was read; a moment that is still to come is none. */
export function expiresAtUs({ sentUs, expiresMs }: Expiring, nowUs: number): number {
  return Math.min(sentUs, nowUs) + expiresMs * 1_000;
}

/** The answer to a move, or to a trim, that is not begun at all: meant for another generation than `own`, for no lease held here, or read too late. Null: it may be. */
export function refusedUnbegun(command: Commanded, own: string, isHeld: boolean, nowUs = monotonicUs()): Control<'failed'> | null {
  const { id, generation, lease, model } = command;
  const failed = (error: LeaseholdError, residentBytes: number | null): Control<'failed'> => ({ type: 'failed', id, code: error.code, message: error.message, residentBytes });
  if (generation !== own) return failed(new LeaseholdError('generation_stale', { generation, current: own }), null);
  if (!isHeld) return failed(new LeaseholdError('lease_unknown', { lease }), 0);
  if (nowUs >= expiresAtUs(command, nowUs)) return failed(new LeaseholdError('command_expired', { model }), null);
  return null;
}
