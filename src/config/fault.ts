/** Faults of a configuration: what is wrong, where a person finds it, and what is allowed there. */
import { LeaseholdError } from '../../protocol/index.js';

/** Keys and indices from the top of a configuration down to one value. */
export type Pointer = readonly (string | number)[];

/** Where settings come from, and how to find one of them again there. */
export interface Source {
  /** A path, `environment` or `command line`. */
  readonly name: string;
  /** What to do about a fault at that place of it. */
  help(where: string): string;
  /** The place of a value, or with `key` of the key that holds it: `line 3, column 5 (limits.x)`, `LEASEHOLD_STATE`, `--device`. */
  locate(pointer: Pointer, part: 'key' | 'value'): { readonly where: string; readonly line: number | null; readonly column: number | null };
}

export interface Fault {
  readonly pointer: Pointer;
  readonly part: 'key' | 'value';
  readonly reason: string;
}

/** More faults than this are counted, not listed. */
const faultsShownMax = 20;

/** `models.tiny-tales.aliases[0]` */
export function pointerText(pointer: Pointer): string {
  return pointer.reduce<string>((text, step) => (typeof step === 'number' ? `${text}[${step}]` : text === '' ? step : `${text}.${step}`), '');
}

/** A value as it was written, cut short, for a message. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** One `config_invalid` for all faults of a source: the first is the message, the others are in `details.more`, one a line. */
export function configInvalid(source: Source, faults: readonly Fault[]): LeaseholdError {
  const found = faults.map((fault) => ({ ...source.locate(fault.pointer, fault.part), fault }));
  found.sort((left, right) => (left.line ?? 0) - (right.line ?? 0) || (left.column ?? 0) - (right.column ?? 0));
  const [first, ...others] = found;
  if (first === undefined) return new LeaseholdError('internal', { reason: 'a configuration was refused without a fault' });
  const listed = others.slice(0, faultsShownMax).map(({ where, fault }) => `${where}: ${fault.reason}`);
  if (others.length > listed.length) listed.push(`and ${others.length - listed.length} more`);
  return new LeaseholdError('config_invalid', {
    path: source.name,
    where: first.where,
    reason: first.fault.reason,
    key: pointerText(first.fault.pointer),
    ...(first.line === null ? {} : { line: first.line, column: first.column }),
    ...(listed.length === 0 ? {} : { more: listed.join('\n') }),
  }, { help: source.help(first.where) });
}
