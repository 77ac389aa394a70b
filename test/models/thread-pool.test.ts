// Threads that die: their task is told, and the next one never is.
import t from 'tap';
import { ThreadEnded, ThreadPool } from '../../src/models/threads/thread-pool.js';
import type { Order } from './hub/dying-thread.js';

const mebibyte = 1024 * 1024;
const poolOf = (threadsMax: number, script = './hub/dying-thread.js'): ThreadPool<Order, number> => new ThreadPool({ script: new URL(script, import.meta.url), threadsMax, heapBytesMax: 12 * mebibyte });
const ended = (how: ThreadEnded['how']) => (error: unknown): boolean => error instanceof ThreadEnded && error.how === how;
const outcomeOf = (run: Promise<number>): Promise<unknown> => run.then((thread) => `lived in ${String(thread)}`, (error: unknown) => (error instanceof ThreadEnded ? error.how : error));

t.test('fifty deaths in a row of a pool with one thread: each is told to its own task, and the next has a thread of its own', { timeout: 240_000 }, async (t) => {
  const pool = poolOf(1);
  t.teardown(() => pool.close());
  const threads: number[] = [];
  for (let round = 0; round < 50; round++) {
    const death: Order = round % 5 === 4 ? 'leave' : 'fill the heap';
    // Both are asked for at once: the second waits while the first one's thread dies.
    const [dead, next] = await Promise.allSettled([pool.run(death, { limitMs: null }), pool.run('live', { limitMs: null })]);
    if (dead.status !== 'rejected' || !ended(death === 'leave' ? 'itself' : 'memory')(dead.reason)) t.fail(`round ${String(round)}: the death was not told`, { dead });
    if (next.status === 'fulfilled') threads.push(next.value);
    else t.fail(`round ${String(round)}: the next task was refused`, { reason: next.reason as unknown });
  }
  t.equal(new Set(threads).size, 50, 'a fresh thread each time');
});

t.test('what ends a task, and its waiting', async (t) => {
  const pool = poolOf(1);
  t.teardown(() => pool.close());
  await t.rejects(pool.run('throw', { limitMs: null }), { message: 'as told' });
  const stop = new AbortController();
  const [hanging, waiting, left, last] = [
    pool.run('hang', { limitMs: 100 }), pool.run('live', { limitMs: 60_000 }), pool.run('live', { limitMs: 60_000, signal: stop.signal }), pool.run('live', { limitMs: 60_000 }),
  ];
  stop.abort(new Error('not wanted'));
  await t.rejects(left, /not wanted/, 'at once, though a task hangs');
  t.equal(await outcomeOf(hanging), 'time', 'which is given up with its thread');
  t.equal(await waiting, await last, 'and those behind it share the next');
  const cut = new AbortController();
  const cutOff = pool.run('hang', { limitMs: null, signal: cut.signal, graceMs: 10 });
  cut.abort(new Error('enough'));
  await t.rejects(cutOff, /enough/);
  await t.rejects(pool.run('live', { limitMs: null, signal: cut.signal }), /enough/);
  t.type(await pool.run('live', { limitMs: null }), 'number');
});

t.test('a thread that dies while it starts is told to the task that waits for it', async (t) => {
  const pool = poolOf(1, './hub/stillborn-thread.js');
  t.teardown(() => pool.close());
  for (let round = 0; round < 3; round++) t.equal(await outcomeOf(pool.run('live', { limitMs: null })), 'itself');
});

t.test('deaths among many tasks of many threads are told to those that died', { timeout: 120_000 }, async (t) => {
  const pool = poolOf(3);
  t.teardown(() => pool.close());
  const orders = Array.from({ length: 60 }, (_, index): Order => (index % 6 === 2 ? 'fill the heap' : index % 6 === 5 ? 'leave' : 'live'));
  const outcomes = await Promise.all(orders.map((order) => outcomeOf(pool.run(order, { limitMs: null }))));
  t.strictSame(outcomes.map((outcome) => String(outcome).replace(/lived in \d+/, 'lived')), orders.map((order) => (order === 'live' ? 'lived' : order === 'leave' ? 'itself' : 'memory')));
});
