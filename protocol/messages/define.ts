/** How a message is described: who sends it, what answers it, what it carries, in one table a plane. */
import { object, type Fields, type InferFields, type Schema } from '../schema.js';

export type Sender = 'worker' | 'holder' | 'client' | 'broker' | 'caller';

export interface MessageDefinition<F extends Fields = Fields> {
  /** Who may send it. */
  readonly from: readonly Sender[];
  /** Types that end it, when it is a request; empty for a notification or an answer. */
  readonly answers: readonly string[];
  /** Types that may come any number of times before the answer. */
  readonly interim: readonly string[];
  /** One line for the wire README. */
  readonly about: string;
  readonly fields: F;
  readonly schema: Schema<InferFields<F>>;
}

export function message<const F extends Fields>(
  about: string,
  from: readonly Sender[],
  fields: F,
  answers: readonly string[] = [],
  interim: readonly string[] = [],
): MessageDefinition<F> {
  return { from, answers, interim, about, fields, schema: object(fields) };
}

type FieldsOf<D> = D extends MessageDefinition<infer F> ? InferFields<F> : never;

/** The union of all messages of a table, told apart by `type`. */
export type MessageOf<Table extends Readonly<Record<string, MessageDefinition>>> = {
  [K in keyof Table & string]: { readonly type: K } & FieldsOf<Table[K]>;
}[keyof Table & string];
