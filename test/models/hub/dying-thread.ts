/** Runs in a thread of a pool under test: does what it is told, dying among it. */
import { setTimeout as pause } from 'node:timers/promises';
import { threadId } from 'node:worker_threads';

export type Order = 'live' | 'fill the heap' | 'leave' | 'throw' | 'hang';

/** Resolves to the thread that did it. */
export default async function obey(order: Order): Promise<number> {
  switch (order) {
    case 'live': return threadId;
    case 'fill the heap': return fill();
    case 'leave': return process.exit(7);
    case 'throw': throw new Error('as told');
    case 'hang': return pause(3_600_000, threadId);
  }
}

function fill(): number {
  const kept: unknown[] = [];
  for (;;) kept.push(Array.from({ length: 1_000 }, (_, index) => ({ index })));
}
