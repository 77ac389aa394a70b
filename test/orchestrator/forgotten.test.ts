// A program that forgets to close: attached, it ends when nothing of it is open; what is open keeps it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { LeaseholdError, createOrchestrator } from '../../src/index.js';
import { MiB, folder, open, scripted, until } from '../integration/support.js';

const library = new URL('../../src/index.js', import.meta.url).href;

/** A program of its own, attached to the broker in `stateFolder`; resolves to how it ended. */
function program(stateFolder: string, body: string): { readonly ended: Promise<{ readonly code: number | null; readonly out: string; readonly err: string }>; readonly said: () => string } {
  const text = `
    import { createOrchestrator } from ${JSON.stringify(library)};
    const leasehold = await createOrchestrator({ stateFolder: ${JSON.stringify(stateFolder)}, broker: 'attach' });
    ${body}`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', text], { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  const heard = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => { heard.out += chunk; });
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => { heard.err += chunk; });
  return { ended: once(child, 'close').then(([code]) => ({ code: code as number | null, ...heard })), said: () => heard.out };
}

t.test('an attached program that never closes ends when its last call has', async (t) => {
  const stateFolder = folder(t);
  await open(t, { stateFolder, models: { m: scripted({ text: 'an answer', loadMs: 200 }) } });
  t.match(await program(stateFolder, 'console.log((await leasehold.generate("m", "x").result()).text, (await leasehold.ledger()).leases.length)').ended, { code: 0, out: 'an answer 1\n', err: '' });
  t.match(await program(stateFolder, 'for await (const { text } of leasehold.generate("m", "x")) console.log(text.length > 0)').ended, { code: 0, out: /^true/, err: '' });
});

t.test('a lease keeps its program until it is given back, and a loop over events until it is left', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder });
  const holder = program(stateFolder, `
    const lease = await leasehold.lease({ model: 'held', bytes: ${String(MiB)}, onEvict: () => ({ residentBytes: 0 }) });
    lease.ended.then((why) => { console.log('gone', why.code); });
    console.log('held');`);
  await until('the lease', async () => holder.said() === 'held\n' ? true : null);
  const listener = program(stateFolder, `
    let asked = false;
    for await (const { name, data } of leasehold.events()) {
      if (name === 'evicting') console.log(data.model);
      asked ||= name === 'evicting';
      // Not of one that was asked before anybody listened.
      if (name === 'evicted' && asked) break;
    }`);
  // Whoever listens is in the ledger as a client; whoever holds as a holder.
  await until('both to be there', async () => (await orchestrator.ledger()).processes.filter(({ role }) => role === 'client').length >= 3 ? true : null);
  await until('the listener to hear', async () => {
    const spare = await orchestrator.lease({ model: 'spare', bytes: MiB, onEvict: () => ({ residentBytes: 0 }) });
    await orchestrator.evict('spare');
    return spare.held || listener.said() === '' ? null : true;
  });
  t.match(await listener.ended, { code: 0, out: 'spare\n', err: '' });
  await orchestrator.evict('held');
  t.match(await holder.ended, { code: 0, out: 'held\ngone closed\n', err: '' });
});

t.test('it can be left to the end of a block', async (t) => {
  const orchestrator = await createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: ['sim:8MiB'] });
  const lease = await orchestrator.lease({ model: 'held', bytes: MiB, onEvict: () => 'busy' });
  lease[Symbol.dispose]();
  t.match(await lease.ended, { code: 'closed' });
  await orchestrator[Symbol.asyncDispose]();
  t.equal(await orchestrator.ledger().then(() => 'open', (error: unknown) => LeaseholdError.from(error).code), 'closed');
});
