/**
 * What a simulated card has given out, line by line in a file, so that it outlives the broker in whose process the card
 * is simulated: a real card's bytes do. A line is written with one write; one that is cut short says nothing.
 */
import { closeSync, writeSync } from 'node:fs';

/** One change: a process's context made (with its floor), bytes given out, given back, or a process gone with all that it had. */
export type JournalEntry =
  | { readonly kind: 'attach'; readonly pid: number; readonly startTime: string | null; readonly floorBytes: number }
  | { readonly kind: 'allocate'; readonly pid: number; readonly allocation: number; readonly bytes: number; readonly name: string | null }
  | { readonly kind: 'free'; readonly pid: number; readonly allocation: number }
  | { readonly kind: 'gone'; readonly pid: number };

/** The file's own business: where it is, and how it is made anew. */
export interface JournalFile {
  /** All that it holds, or null when there is none. */
  read(): string | null;
  /** Opens it anew with this text as its whole content; returns the descriptor to append to. */
  replace(text: string): number;
}

/** No card gives out so many: what comes after it could not be counted. */
const allocationMax = 2 ** 48;

/** A file longer than this is written anew with what still counts. */
const compactBytes = 1024 * 1024;

export class CardJournal {
  readonly #file: JournalFile;
  readonly #onFault: (error: unknown) => void;
  #descriptor: number | null = null;
  #writtenBytes = 0;

  /** `onFault`: the file cannot be written any more; the card goes on without it. */
  constructor(file: JournalFile, onFault: (error: unknown) => void) {
    this.#file = file;
    this.#onFault = onFault;
  }

  /** What was written before, in order. Lines that are none, or cannot be true of a card of this size, are left out and counted. */
  read(totalBytes: number): { readonly entries: readonly JournalEntry[]; readonly unbelieved: number } {
    const lines = (this.#file.read() ?? '').split('\n').filter((line) => line !== '');
    const entries = lines.map(parsed).filter((entry) => entry !== null && fits(entry, totalBytes)) as readonly JournalEntry[];
    return { entries, unbelieved: lines.length - entries.length };
  }

  /** Begins anew with these entries. */
  begin(entries: readonly JournalEntry[]): void {
    this.#guarded(() => {
      this.#close();
      const text = entries.map(lineOf).join('');
      this.#descriptor = this.#file.replace(text);
      this.#writtenBytes = 0;
    });
  }

  /** Notes one change; `all` gives what still counts, for when the file has grown too long. */
  note(entry: JournalEntry, all: () => readonly JournalEntry[]): void {
    if (this.#descriptor === null) return;
    if (this.#writtenBytes > compactBytes) {
      this.begin(all());
      return;
    }
    const line = lineOf(entry);
    this.#guarded(() => { this.#writtenBytes += writeSync(this.#descriptor ?? -1, line); });
  }

  close(): void {
    this.#guarded(() => { this.#close(); });
  }

  #close(): void {
    const descriptor = this.#descriptor;
    this.#descriptor = null;
    if (descriptor !== null) closeSync(descriptor);
  }

  #guarded(write: () => void): void {
    try {
      write();
    } catch (error) {
      this.#descriptor = null;
      this.#onFault(error);
    }
  }
}

function fits(entry: JournalEntry, totalBytes: number): boolean {
  return (entry.kind === 'attach' ? entry.floorBytes : entry.kind === 'allocate' ? entry.bytes : 0) <= totalBytes;
}

function lineOf(entry: JournalEntry): string {
  return `${JSON.stringify(entry)}\n`;
}

function parsed(line: string): JournalEntry | null {
  try {
    const value = JSON.parse(line) as Partial<Record<string, unknown>> | null;
    return typeof value === 'object' && value !== null && isEntry(value) ? value as unknown as JournalEntry : null;
  } catch {
    // Cut short by a death, or not of ours.
    return null;
  }
}

function isEntry(value: Partial<Record<string, unknown>>): boolean {
  if (!isCount(value['pid'])) return false;
  switch (value['kind']) {
    case 'attach': return isCount(value['floorBytes']) && isTextOrNull(value['startTime']);
    case 'allocate': return isCount(value['allocation']) && (value['allocation'] as number) < allocationMax && isCount(value['bytes']) && isTextOrNull(value['name']);
    case 'free': return isCount(value['allocation']);
    default: return value['kind'] === 'gone';
  }
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isTextOrNull(value: unknown): boolean {
  return value === null || typeof value === 'string';
}
