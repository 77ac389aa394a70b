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
  locate(pointer: Pointer, part: 'key' | 'value'): Place;
}

export interface Place {
  readonly where: string;
  readonly line: number | null;
  readonly column: number | null;
}

/** What is wrong in one source. */
export interface SourceFaults {
  readonly source: Source;
  readonly faults: readonly Fault[];
}

export interface Fault {
  readonly pointer: Pointer;
  readonly part: 'key' | 'value';
  readonly reason: string;
  /** Where it is in the text, where that is known already; else found by the pointer. */
  readonly at?: Place;
}

/** More faults than this are counted, not listed. */
const faultsShownMax = 20;

/** `models.tiny-tales.aliases[0]` */
export function pointerText(pointer: Pointer): string {
  return pointer.reduce<string>((text, step) => (typeof step === 'number' ? `${text}[${step}]` : text === '' ? step : `${text}.${step}`), '');
}

/** A value as it was written, cut short, for a message. */
export function shown(value: unknown): string {
  // JSON has no word for it, and `null` would be another's.
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** One `config_invalid` for all faults of a source: the first is the message, the others are in `details.more`, one a line. */
export function configInvalid(source: Source, faults: readonly Fault[]): LeaseholdError {
  return allInvalid([{ source, faults }]);
}

/** The same for several sources, in their order; those after the first are named in their lines. Its cause has each fault as an error of its own (`errors`). */
export function allInvalid(all: readonly SourceFaults[]): LeaseholdError {
  const found = all.flatMap(({ source, faults }) => inOrder(faults.map((fault) => ({ source, fault, ...fault.at ?? source.locate(fault.pointer, fault.part) }))));
  const [first, ...others] = found;
  if (first === undefined) return new LeaseholdError('internal', { reason: 'a configuration was refused without a fault' });
  const listed = others.slice(0, faultsShownMax).map(({ source, where, fault }) => `${source === first.source ? '' : `${source.name}: `}${where}: ${fault.reason}`);
  if (others.length > listed.length) listed.push(`and ${others.length - listed.length} more`);
  const errors = found.slice(0, faultsShownMax + 1).map((each) => new LeaseholdError('config_invalid', detailsOf(each), { help: each.source.help(each.where) }));
  return new LeaseholdError('config_invalid', { ...detailsOf(first), ...(listed.length === 0 ? {} : { more: listed.join('\n') }) }, {
    help: first.source.help(first.where), ...(others.length === 0 ? {} : { cause: new AggregateError(errors, 'all that is wrong') }),
  });
}

function detailsOf({ source, fault, where, line, column }: Place & { readonly source: Source; readonly fault: Fault }): Readonly<Record<string, string | number | null>> {
  return { path: source.name, where, reason: fault.reason, key: pointerText(fault.pointer), ...(line === null ? {} : { line, column }) };
}

function inOrder<Found extends Place>(found: Found[]): Found[] {
  return found.sort((left, right) => (left.line ?? 0) - (right.line ?? 0) || (left.column ?? 0) - (right.column ?? 0));
}
