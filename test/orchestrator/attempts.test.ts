/** How often a call is tried, by what was lost, and for how long; on a broker that there is none of. */
import { getEventListeners } from 'node:events';
import t from 'tap';
import { LeaseholdError, type ErrorCode } from '../../protocol/index.js';
import { silentLog } from '../../broker/shell/index.js';
import { Attempts } from '../../src/orchestrator/attempts.js';
import type { Served } from '../../src/orchestrator/catalogue.js';
import type { Link } from '../../src/orchestrator/link.js';
import type { CallOptions } from '../../src/orchestrator/types.js';
import { refusal } from '../integration/support.js';

const served = { name: 'm', device: null, class: 'normal' } as unknown as Served;

/** Every worker is lost with this code before its first token. */
function losing(code: ErrorCode): Link {
  const lost = new LeaseholdError(code, { peer: 'the worker', reason: 'scripted', what: 'The broker' });
  return { callers: { place: () => Promise.reject(lost) }, obituaries: { explain: (error: unknown) => Promise.resolve(LeaseholdError.from(error)) } } as unknown as Link;
}

/** Tries until it is given up; returns how often, and why. */
async function tried(link: () => Promise<Link>, options: CallOptions): Promise<{ readonly times: number; readonly error: LeaseholdError }> {
  const attempts = new Attempts({ link, log: silentLog, requestDeadlineMs: 60_000 }, served, options);
  for (let times = 1; ; times++) {
    const given = await attempts.next().then(() => { throw new Error('there is no worker'); }, (error: unknown) => attempts.failed(error)).then(() => null, (error: unknown) => LeaseholdError.from(error));
    if (given !== null) return { times, error: given };
  }
}

// They wait for the most part: beside each other they take little longer than the longest.
t.jobs = 4;

t.test('a worker that ends is replaced once, a way that is lost is sought several times', async (t) => {
  t.match(await tried(() => Promise.resolve(losing('worker_exited')), {}), { times: 2, error: { code: 'worker_exited' } });
  t.match(await tried(() => Promise.resolve(losing('connection_lost')), {}), { times: 8, error: { code: 'connection_lost' } });
  t.match(await tried(() => Promise.resolve(losing('never_fits')), {}), { times: 1, error: { code: 'never_fits' } }, 'a refusal stands');
});

t.test('what its card can never hold is placed anew, once, where another card could hold it', async (t) => {
  const tooLarge = (details: Readonly<Record<string, string>>): Link => ({
    callers: { place: () => Promise.resolve({ generation: 'b-w1' }), open: () => Promise.reject(new LeaseholdError('never_fits', details)) },
    obituaries: { explain: (error: unknown) => Promise.resolve(LeaseholdError.from(error)) },
  } as unknown as Link);
  for (const [details, times] of [[{ elsewhere: 'SIM-2' }, 2], [{ elsewhere: '' }, 1], [{}, 2]] as const) {
    t.match(await tried(() => Promise.resolve(tooLarge(details)), {}), { times, error: { code: 'never_fits' } }, JSON.stringify(details));
  }
});

t.test('a broker that says that it ends is left within the deadline, and no later', async (t) => {
  const startedMs = performance.now();
  const { times, error } = await tried(() => Promise.resolve(losing('shutting_down')), { deadlineMs: 700 });
  t.match(error, { code: 'shutting_down' });
  t.ok(times >= 2 && performance.now() - startedMs < 10_000);
});

t.test('a worker that ends is left at once, and not for ever; waiting between two tries leaves no listener behind', async (t) => {
  const explained = { count: 0 };
  const refusing = {
    callers: { place: () => Promise.resolve({ generation: 'b-w1' }), open: () => Promise.reject(new LeaseholdError('shutting_down', { what: 'The worker' })) },
    obituaries: { explain: (error: unknown) => { explained.count += 1; return Promise.resolve(LeaseholdError.from(error)); } },
  } as unknown as Link;
  const { signal } = new AbortController();
  t.match(await tried(() => Promise.resolve(refusing), { signal }), { times: 8, error: { code: 'shutting_down', details: { what: 'The worker' } } });
  t.equal(explained.count, 0, 'no word of its end is waited for');
  t.equal(getEventListeners(signal, 'abort').length, 0);
});

t.test('a broker that does not come is waited for until the deadline; one that cannot be had is told at once', async (t) => {
  t.match(await tried(() => new Promise<Link>(() => undefined), { deadlineMs: 50 }), { times: 1, error: { code: 'deadline_passed', details: { deadlineMs: '50' } } });
  t.match(await tried(() => Promise.reject(new LeaseholdError('broker_lost', { reason: 'none answers' })), {}), { times: 1, error: { code: 'broker_lost' } });
});

t.test('whoever aborts between two tries is told why it was', async (t) => {
  const stop = new AbortController();
  const attempts = new Attempts({ link: () => Promise.resolve(losing('shutting_down')), log: silentLog, requestDeadlineMs: 600_000 }, served, { signal: stop.signal });
  const pausing = attempts.failed(await refusal(attempts.next()));
  stop.abort(new LeaseholdError('closed', { what: 'The orchestrator' }));
  await pausing;
  t.equal((await refusal(attempts.failed(await refusal(attempts.next())))).code, 'closed');
});
