/**
 * From a decoded value to a typed message, or the first thing wrong with it.
 * This says only whether the value is a message of the plane; whether it may
 * be sent here and now is the session's to say.
 */
import { LeaseholdError } from './errors.js';
import { controlMessages, type ControlMessage } from './messages/control.js';
import { dataMessages, type DataMessage } from './messages/data.js';
import type { MessageDefinition } from './messages/define.js';

/** Control: a broker and its workers, holders and clients. Data: a worker and its callers. */
export type Plane = 'control' | 'data';
export type MessageOn<P extends Plane> = P extends 'control' ? ControlMessage : DataMessage;

/** The message tables by plane. */
export const planes: Readonly<Record<Plane, Readonly<Record<string, MessageDefinition>>>> = {
  control: controlMessages,
  data: dataMessages,
};

const byType: Readonly<Record<Plane, ReadonlyMap<string, MessageDefinition>>> = {
  control: new Map(Object.entries(controlMessages)),
  data: new Map(Object.entries(dataMessages)),
};

/** How a message of this type is described; undefined when the plane has no such type. */
export function definitionOf(plane: Plane, type: string): MessageDefinition | undefined {
  return byType[plane].get(type);
}

/**
 * The message, with the fields that are named checked and fields that are not
 * left alone; or `message_invalid`, which names the field and what it must be,
 * or `message_unknown`. Never throws.
 */
export function validateMessage<P extends Plane>(plane: P, value: unknown): MessageOn<P> | LeaseholdError {
  if (typeof value !== 'object' || value === null) return invalid('message', '(whole)', 'a map with a field type');
  const type = (value as { readonly type?: unknown }).type;
  if (typeof type !== 'string') return invalid('message', 'type', 'a string');
  const definition = byType[plane].get(type);
  if (definition === undefined) return new LeaseholdError('message_unknown', { type: type.slice(0, 64) });
  const fault = definition.schema.check(value, '');
  return fault === null ? (value as MessageOn<P>) : invalid(type, fault.path, fault.expected);
}

function invalid(type: string, field: string, expected: string): LeaseholdError {
  return new LeaseholdError('message_invalid', { type, field: field.slice(0, 256), expected });
}
