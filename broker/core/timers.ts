/**
 * Everything that falls due, in attended time: an indexed binary heap, so that
 * a deadline is set, moved and dropped in O(log n) and none outlives its owner.
 * One timer a (kind, key). Looked at on `ticked` alone.
 */

export type TimerKind =
  | 'deadline'
  | 'evict_deadline'
  | 'grant_confirm'
  | 'load'
  | 'job'
  | 'release'
  | 'returning'
  | 'ttl'
  | 'wish'
  | 'trim'
  | 'heartbeat'
  | 'spawn'
  | 'idle'
  | 'detached'
  | 'card_lost'
  | 'assignment';

export interface Timer {
  readonly kind: TimerKind;
  readonly key: string;
  readonly dueUs: number;
  /** Equal moments fall due in the order in which they were set. */
  readonly order: number;
}

interface Entry {
  timer: Timer;
  place: number;
}

export class Timers {
  private readonly heap: Entry[] = [];
  private readonly byKind = new Map<TimerKind, Map<string, Entry>>();
  private nextOrder = 0;
  /** The latest moment that has been looked at. */
  private lookedAtUs = -1;

  get size(): number {
    return this.heap.length;
  }

  /** Sets or moves the timer of this kind and key. For a moment that has been looked at, it falls due at the next look: never twice at one. */
  set(kind: TimerKind, key: string, wantedUs: number): void {
    const dueUs = Math.max(wantedUs, this.lookedAtUs + 1);
    const timer = { kind, key, dueUs, order: this.nextOrder++ };
    let keys = this.byKind.get(kind);
    if (keys === undefined) {
      keys = new Map<string, Entry>();
      this.byKind.set(kind, keys);
    }
    const known = keys.get(key);
    if (known === undefined) {
      const entry = { timer, place: this.heap.length };
      this.heap.push(entry);
      keys.set(key, entry);
      this.rise(entry);
    } else {
      known.timer = timer;
      this.rise(known);
      this.sink(known);
    }
  }

  has(kind: TimerKind, key: string): boolean {
    return this.byKind.get(kind)?.has(key) === true;
  }

  drop(kind: TimerKind, key: string): void {
    const entry = this.byKind.get(kind)?.get(key);
    if (entry !== undefined) this.remove(entry);
  }

  dropAll(key: string, kinds: readonly TimerKind[]): void {
    for (const kind of kinds) this.drop(kind, key);
  }

  /** Takes out the earliest timer due by `nowUs`, or null. */
  takeDue(nowUs: number): Timer | null {
    this.lookedAtUs = Math.max(this.lookedAtUs, nowUs);
    const first = this.heap[0];
    if (first === undefined || first.timer.dueUs > nowUs) return null;
    this.remove(first);
    return first.timer;
  }

  /** Every timer, in the order in which it was set: what a snapshot keeps. */
  list(): Timer[] {
    return this.heap.map((entry) => entry.timer).sort((a, b) => a.order - b.order);
  }

  private remove(entry: Entry): void {
    const last = this.heap.pop();
    this.byKind.get(entry.timer.kind)?.delete(entry.timer.key);
    if (last === undefined || last === entry) return;
    last.place = entry.place;
    this.heap[entry.place] = last;
    this.rise(last);
    this.sink(last);
  }

  private rise(entry: Entry): void {
    while (entry.place > 0) {
      const above = this.heap[(entry.place - 1) >> 1];
      if (above === undefined || !isBefore(entry.timer, above.timer)) return;
      this.swap(entry, above);
    }
  }

  private sink(entry: Entry): void {
    for (;;) {
      const left = this.heap[entry.place * 2 + 1];
      const right = this.heap[entry.place * 2 + 2];
      const below = right !== undefined && left !== undefined && isBefore(right.timer, left.timer) ? right : left;
      if (below === undefined || !isBefore(below.timer, entry.timer)) return;
      this.swap(entry, below);
    }
  }

  private swap(a: Entry, b: Entry): void {
    const place = a.place;
    a.place = b.place;
    b.place = place;
    this.heap[a.place] = a;
    this.heap[b.place] = b;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.dueUs < b.dueUs || (a.dueUs === b.dueUs && a.order < b.order);
}
