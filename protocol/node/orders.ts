/** What the broker says to who holds leases, worker or holder: one method an order, and a refusal of what neither serves. */
import { LeaseholdError } from '../errors.js';
import type { ControlMessage } from '../messages/control.js';
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

/** The answer to a move, or to a trim, that is not for us: for another generation than `own`, or for no lease held here. Null: it is for us. */
export function misdirected({ id, generation, lease }: Pick<Control<'model_to_device'>, 'id' | 'generation' | 'lease'>, own: string, isHeld: boolean): Control<'failed'> | null {
  const isStale = generation !== own;
  if (!isStale && isHeld) return null;
  const error = isStale ? new LeaseholdError('generation_stale', { generation, current: own }) : new LeaseholdError('lease_unknown', { lease });
  return { type: 'failed', id, code: error.code, message: error.message, residentBytes: isStale ? null : 0 };
}
