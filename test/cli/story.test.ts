/** The lines that a daemon's terminal tells: what each says, and what is not worth one. */
import t from 'tap';
import { createPalette } from '../../src/cli/terminal/colour.js';
import { createNames } from '../../src/cli/views/names.js';
import { storyLine } from '../../src/cli/views/story.js';
import { effectNames } from './published-names.js';

const names = createNames([{ name: 'facts', aliases: [], key: 'facts@llama#1', engine: 'llama', source: '', contextTokens: 1, preload: false }]);
const at = new Date(2026, 0, 1, 9, 8, 7);
const MiB = 1024 ** 2;

function told(name: string, data: object, colour = false): string | null {
  const base = { device: 'GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd', generation: '0123456789ab-w1', lease: '0123456789ab-l1', model: 'facts@llama#1', name: 'facts' };
  return storyLine({ name, atUs: 1, dropped: 0, data: { ...base, ...data } }, names, createPalette(colour), at);
}

t.test('what a person should know of has a line', async (t) => {
  const cases: readonly (readonly [name: string, data: object, line: string])[] = [
    ['loaded', { residentBytes: 9.4 * MiB, loadMs: 55 }, 'facts loaded on GPU-5f3c9a1e: 9.4 MiB in 55 ms'],
    ['loaded', { residentBytes: 9.4 * MiB, loadMs: null }, 'facts loaded on GPU-5f3c9a1e: 9.4 MiB'],
    ['loaded', { residentBytes: 0, loadMs: 55 }, 'facts loaded on GPU-5f3c9a1e in 55 ms'],
    ['evicted', { freedBytes: 0, reason: 'asked for' }, 'facts put away (asked for)'],
    ['evicted', { freedBytes: 9 * MiB, reason: 'room for sums' }, 'facts put away: 9.0 MiB of GPU-5f3c9a1e free again (room for sums)'],
    ['evicted', { rung: 'park', freedBytes: 9 * MiB, reason: 'room for sums' }, 'facts parked: 9.0 MiB of GPU-5f3c9a1e free again (room for sums)'],
    ['evicted', { rung: 'unload', freedBytes: 9 * MiB, reason: 'asked for' }, 'facts unloaded: 9.0 MiB of GPU-5f3c9a1e free again (asked for)'],
    ['evicted', { rung: 'partial', freedBytes: MiB, reason: 'room for sums' }, 'facts gave back a part: 1.0 MiB of GPU-5f3c9a1e free again (room for sums)'],
    ['evicted', { rung: 'trim', device: 'HOST-1', freedBytes: MiB, reason: 'room for sums' }, 'facts dropped its copy: 1.0 MiB of HOST-1 free again (room for sums)'],
    ['granted', { grownBytes: 2 * MiB, chargedBytes: 11 * MiB }, 'facts has grown on GPU-5f3c9a1e by 2.0 MiB, to 11.0 MiB charged'],
    ['leaving_slowly', { why: 'facts (s19) was asked to leave 4 s ago and has not answered' }, 'facts (s19) was asked to leave 4 s ago and has not answered'],
    ['eviction_failed', { why: 'the move took too long' }, 'facts could not be put away (the move took too long)'],
    ['denied', { code: 'never_fits', why: 'facts@llama#1 can never fit' }, 'facts denied, never_fits: facts can never fit'],
    ['denied', { code: 'never_fits', why: 'facts@llama#1 can never fit on SIM-0; SIM-1 could hold it', elsewhere: 'SIM-1' }, 'facts can never fit on SIM-0; SIM-1 could hold it'],
    ['waiting', { reason: 'no_victims', why: 'sums is pinned' }, 'facts waits: sums is pinned'],
    ['process_ended', { how: 'SIGKILL', cause: 'session_lost', models: 'facts, sums' }, 'process w1 ended by itself (SIGKILL), and with it facts, sums'],
    ['process_ended', { how: 'exit code 1', cause: null, models: 'facts' }, 'process w1 ended by itself (exit code 1), and with it facts'],
    ['process_ended', { how: 'SIGKILL', cause: 'spawn_timeout', models: null }, 'process w1 was ended: spawn timeout (SIGKILL)'],
    ['process_suspect', { name: '', model: '', generation: '0123456789ab-s3', why: 'silent for 9 s' }, 'process s3 is silent (silent for 9 s)'],
    ['quarantined', { bytes: 5 * MiB, why: 'it threw' }, '5.0 MiB of facts on GPU-5f3c9a1e are quarantined: it threw'],
    ['overshoot', { bytes: 5 * MiB }, 'facts holds more than was granted on GPU-5f3c9a1e: 5.0 MiB'],
    ['overshoot', { bytes: 5 * MiB, where: 'host' }, 'facts has 5.0 MiB in host memory that GPU-5f3c9a1e had no room for: it is slow there'],
    ['host_growth', { model: '', bytes: 5 * MiB }, 'w1 has 5.0 MiB more of the machine\'s memory than was granted: it is asked to give that back'],
    ['residue', { bytes: 5 * MiB }, '5.0 MiB of facts are still on GPU-5f3c9a1e after it was put away'],
    ['backing_off', { failures: 2, retryAfterMs: 2_000, reason: 'no such file' }, 'facts failed, 2 in a row; next try in 2.0 s: no such file'],
    ['process_recorded', { role: 'worker', engine: 'llama' }, 'worker w1 of an earlier broker lives on (llama)'],
    ['process_reattached', { role: 'worker', leases: 2 }, 'worker w1 is back, with 2 leases'],
    ['card_closed', {}, 'nothing is granted on GPU-5f3c9a1e until w1 has said what it holds there, or is gone'],
    ['card_opened', { closedMs: 400 }, 'GPU-5f3c9a1e is granted again; it was closed for 400 ms'],
    ['misplaced', { bytes: 5 * MiB }, '5.0 MiB of facts are on GPU-5f3c9a1e, where nothing was granted to it'],
    ['card_lost', { reason: 'it fell off the bus' }, 'GPU-5f3c9a1e is gone: it fell off the bus; what was there stays charged'],
    ['card_regained', { lostMs: 400 }, 'GPU-5f3c9a1e is back after 400 ms'],
    ['thrashing', { shareOfTime: 0.4, windowMs: 120_000, models: 'facts@llama#1 (2 times, 8.0 s), sums (once, 4.0 s)', neededBytes: 30 * MiB, capacityBytes: 24 * MiB }, 'GPU-5f3c9a1e thrashes: 40 % of the last 2 m 00 s went into loading again what had been put away for each other: facts (2 times, 8.0 s), sums (once, 4.0 s); 6.0 MiB are lacking for all of them to stay (leasehold ps says what can be done)'],
    ['thrash_ended', { thrashedMs: 90_000 }, 'GPU-5f3c9a1e thrashes no longer; it did for 1 m 30 s'],
    ['state_restored', { what: 'socket', path: '/s/broker.sock' }, 'the socket at /s/broker.sock was gone and has been put back'],
    ['state_lost', { what: 'secret', path: '/s/secret', reason: 'it is a folder' }, 'the secret at /s/secret cannot be put back: it is a folder'],
    ['loop_blocked', { role: 'worker', blockedMs: 3_200, times: 1 }, 'worker w1\'s loop was blocked for 3.2 s'],
    ['loop_blocked', { role: 'holder', generation: '0123456789ab-s3', blockedMs: 3_200, times: 4 }, 'holder s3\'s loop was blocked for 3.2 s, the longest of 4 times'],
    ['loop_blocked', { role: 'broker', generation: null, blockedMs: 1_500, times: 1 }, 'the broker\'s own loop was blocked for 1.5 s'],
    ['sample_lost', { reading: 'failed', reason: 'exit code 9' }, 'GPU-5f3c9a1e cannot be read: exit code 9'],
    ['sample_regained', { missingMs: 1_500 }, 'GPU-5f3c9a1e is read again after 1.5 s'],
    ['yielded', { strangersBytes: 64 * MiB, beforeBytes: 0, shortBytes: 8 * MiB, victims: 1, pids: '4711 4712' }, 'GPU-5f3c9a1e gives way to other programs, which have 64.0 MiB of it (pid 4711 4712): 8.0 MiB more are made free for them'],
    ['loaded', { residentBytes: MiB, loadMs: 5, layersOnCard: 24, layers: 36 }, 'facts loaded on GPU-5f3c9a1e, 24 of 36 layers: 1.0 MiB in 5 ms'],
    ['yielded', { strangersBytes: 64 * MiB, shortBytes: 8 * MiB, pids: null }, 'GPU-5f3c9a1e gives way to other programs, which have 64.0 MiB of it: 8.0 MiB more are made free for them'],
    ['foreign_changed', { foreignBytes: 0, beforeBytes: 64 * MiB }, 'other programs use 0 of GPU-5f3c9a1e; it was 64.0 MiB'],
  ];
  for (const [name, data, line] of cases) t.equal(told(name, ['process_ended', 'host_growth'].includes(name) ? { name: '', model: '', ...data } : data), `09:08:07  ${line}`);
  t.equal(told('quarantined', { bytes: 1, why: 'x' }, true), '\u001B[2m09:08:07\u001B[22m  \u001B[31m1 B of facts on GPU-5f3c9a1e are quarantined: x\u001B[39m');
});

t.test('presets of one load are told by their contexts', async (t) => {
  const preset = { aliases: [], key: 'facts@llama#1', engine: 'llama', source: '', preload: false };
  const presets = createNames([{ ...preset, name: 'short', contextTokens: 512 }, { ...preset, name: 'long', contextTokens: 4096 }]);
  const event = { name: 'loaded', atUs: 1, dropped: 0, data: { device: 'SIM-1', model: 'facts@llama#1', name: 'short', residentBytes: MiB, loadMs: 5 } };
  t.equal(storyLine(event, presets, createPalette(false), at), '09:08:07  short (512) or long (4096) loaded on SIM-1: 1.0 MiB in 5 ms');
});

t.test('what is routine has none', async (t) => {
  t.equal(told('waiting', { reason: 'leaving', why: 'room is being made' }), null);
  for (const cause of ['idle', 'evicted', 'unawaited', 'shutdown']) t.equal(told('process_ended', { how: 'exit code 0', cause, models: null }), null);
  t.equal(told('process_ended', { how: 'closed', cause: null, models: null }), null, 'who came and held nothing');
  t.equal(told('process_suspect', { why: 'closed by the peer' }), null, 'a worker: its end is told');
  for (const name of ['granted', 'placed', 'spawned', 'process_ready', 'residency_changed', 'evicting', 'released', 'obituary', 'of a newer broker']) t.equal(told(name, {}), null, name);
});

t.test('every event of the broker has been thought of', async (t) => {
  const lines = ['granted', 'loaded', 'evicted', 'eviction_failed', 'leaving_slowly', 'denied', 'waiting', 'process_ended', 'process_suspect', 'quarantined', 'overshoot', 'host_growth', 'residue', 'backing_off', 'sample_lost', 'sample_regained', 'foreign_changed', 'yielded', 'process_recorded', 'process_reattached', 'card_closed', 'card_opened', 'card_lost', 'card_regained', 'misplaced', 'thrashing', 'thrash_ended'];
  const none = ['placed', 'spawned', 'process_ready', 'residency_changed', 'evicting', 'released'];
  t.strictSame([...lines, ...none].sort(), [...effectNames()].sort());
});

t.test('what an event quotes stays in its line: nobody forges one of ours', (t) => {
  const why = 'boom\n02:00:00  bank granted 24.0 MiB\r\nReady.\u2028{"level":60}\u200F\uFEFF\u001B[31m';
  for (const name of ['eviction_failed', 'denied', 'quarantined', 'leaving_slowly']) {
    const line = told(name, { why, code: 'x', bytes: 1 }) ?? '';
    t.match(line, /^09:08:07 {2}.*boom 02:00:00 {2}bank granted 24\.0 MiB Ready\. \{"level":60\}\[31m\)?$/, name);
  }
  t.end();
});
