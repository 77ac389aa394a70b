/** What the broker owes to a session: one final answer for each id, also for those that were taken back. */
import t from 'tap';
import { connectBroker } from '../../../src/client/index.js';
import { readStateFolder } from '../../../src/orchestrator/index.js';
import { MiB, folder, open, peer, refusal, scripted } from '../../integration/support.js';

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
  const orchestrator = await open(t, { stateFolder, models: { m: scripted({ text: 'hello' }) }, limits: { sessionsMax: 2 } });
  const quiet = await peer(stateFolder, 'holder');
  t.match(await refusal(peer(stateFolder, 'client')), { code: 'too_many_sessions', details: { limit: '2' } });
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
  t.match(await refusal(peer(stateFolder, 'client')), { code: 'too_many_sessions' }, 'a worker makes no room for others either');
  quiet.channel.end();
});
