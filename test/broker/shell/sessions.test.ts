/** What the broker owes to a session: one final answer for each id, also for those that were taken back. */
import t from 'tap';
import { connectBroker } from '../../../src/client/index.js';
import { readStateFolder } from '../../../src/orchestrator/index.js';
import { holderElsewhere } from '../../integration/holder-elsewhere.js';
import { MiB, folder, open, peer, refusal, scripted, until } from '../../integration/support.js';

t.test('requests that were taken back leave room for new ones on their connection', async (t) => {
  const stateFolder = folder(t);
  const openRequestsPerSessionMax = 8;
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'], limits: { openRequestsPerSessionMax } });
  const state = readStateFolder(stateFolder);
  if (state === null) throw new Error('the broker left no state');
  const holder = await connectBroker({ socketPath: state.socketPath, secret: state.secret, role: 'holder', name: 'test' });
  const [card] = holder.devices;
  const device = card?.device ?? '';
  const first = await holder.holdLease({ model: 'first', device, bytes: 40 * MiB, onEvict: () => 'busy' });

  for (let turn = 0; turn < openRequestsPerSessionMax + 4; turn++) {
    const abort = new AbortController();
    const asked = holder.holdLease({
      model: `second-${String(turn)}`, device, bytes: 40 * MiB, signal: abort.signal, onEvict: () => 'busy',
      onWaiting: () => { abort.abort(); },
    });
    await t.rejects(asked, { code: 'request_cancelled' }, `request ${String(turn)} was taken back`);
  }
  const small = await holder.holdLease({ model: 'small', device, bytes: MiB, onEvict: () => 'busy' });
  const ledger = await orchestrator.ledger();
  t.equal(ledger.waiting.length, 0, 'nobody waits any more');
  t.same(ledger.leases.map(({ model }) => model).sort(), ['first', 'small']);
  small.release('unused');
  first.release('unused');
  await holder.close();
});

t.test('whoever else is connected, the broker’s own workers come in', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, models: { m: scripted({ text: 'hello' }) }, limits: { sessionsMax: 2, sessionsPerProcessMax: 2 } });
  const quiet = await peer(stateFolder, 'holder');
  t.match(await refusal(peer(stateFolder, 'client')), { code: 'too_many_sessions', details: { limit: '2' } });
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
  t.match(await refusal(peer(stateFolder, 'client')), { code: 'too_many_sessions' }, 'a worker makes no room for others either');
  quiet.channel.end();
});

t.test('one process has a part of the sessions alone: however many it asks for, the others come in', { skip: process.platform === 'win32' ? 'there is no pid of a peer there' : false }, async (t) => {
  const stateFolder = folder(t);
  // One of them is the orchestrator’s own.
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'], models: {}, limits: { sessionsMax: 8, sessionsPerProcessMax: 3 } });
  const one = await peer(stateFolder, 'client');
  await peer(stateFolder, 'holder');
  for (let turn = 0; turn < 8; turn++) {
    const refused = await refusal(peer(stateFolder, turn % 2 === 0 ? 'client' : 'holder'));
    t.match(refused, { code: 'too_many_own_sessions', retryable: true, details: { limit: '3', pid: String(process.pid) } });
  }
  const other = await holderElsewhere(t, stateFolder, 'other', 'stay');
  t.match((await orchestrator.ledger()).leases, [{ model: 'other', lease: other.lease }], 'another process has its place, and its lease');
  one.channel.end();
  await until('its place to be free', () => peer(stateFolder, 'client').then(() => true, () => false));
});

t.test('D7: a holder whose connection a process of its own goes on with has not ended with its pid', { skip: process.platform === 'win32' ? 'connections are not handed on there' : false }, async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'], models: {} });
  const leaseOf = async (name: string) => (await orchestrator.ledger()).leases.find(({ model }) => model === name) ?? null;
  const handed = await holderElsewhere(t, stateFolder, 'handed', 'hands');
  t.notOk((await orchestrator.ledger()).holders.some(({ pid }) => pid === handed.pid), 'it is known by the pid that connected');
  const other = await holderElsewhere(t, stateFolder, 'other', 'stay');
  process.kill(other.pid, 'SIGKILL');
  await until('the end of the other to be seen', async () => await leaseOf('other') === null);
  t.match(await leaseOf('handed'), { lease: handed.lease, state: 'resident', residentBytes: 20 * MiB });
  t.match(await refusal(orchestrator.lease({ model: 'third', bytes: 50 * MiB, deadlineMs: 300, onEvict: () => 'busy' })), { code: 'deadline_passed' }, 'no byte of it is free');
  process.kill(handed.pid, 'SIGKILL');
  await until('its end to be seen', async () => await leaseOf('handed') === null);
  await until('nobody to be left', async () => (await orchestrator.ledger()).holders.every(({ pid }) => pid === process.pid));
});

t.test('a peer full of questions is answered one of them a turn: another that asks once is not behind all of them', async (t) => {
  const stateFolder = folder(t);
  await open(t, { stateFolder, devices: ['sim:64MiB'], models: {} });
  let answered = 0;
  const flood = await peer(stateFolder, 'client');
  const other = await peer(stateFolder, 'client');
  const asked = Array.from({ length: 900 }, () => flood.channel.request({ type: 'ledger' }, { timeoutMs: null }).then(() => { answered += 1; }));
  await other.channel.request({ type: 'ledger' }, { timeoutMs: null });
  t.ok(answered < 30, `${String(answered)} of 900 were before it`);
  await Promise.all(asked);
  t.equal(answered, 900, 'and none is lost');
  flood.channel.end();
  other.channel.end();
});
