/** What is wrong in itself is refused with a code, the thing, the limit and what to do; nothing is lost by it, and a bystander streams on. */
import { existsSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import type { LedgerState, Orchestrator } from '../../src/orchestrator/index.js';
import { startHost } from './host-process.js';
import { MiB, card, folder, open, peer, rawPeer, refusal, residentBytes, scripted, until, type Peer } from './support.js';

type Asked = Parameters<Peer['ask']>[0];

/** A request for room, with whatever is given put in its place. */
function budget(device: string, changes: Readonly<Record<string, unknown>> = {}): Asked {
  return {
    type: 'request_vram_budget', model: 'odd', device, lease: null, parts: [part(MiB)], peakBytes: 0, class: 'normal', deadlineMs: 5_000,
    parkable: false, profilesFreeMemory: false, source: 'declared', policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null, ...changes,
  };
}

function part(bytes: unknown, name = 'held'): Readonly<Record<string, unknown>> {
  return { name, kind: 'other', bytes, upFront: true };
}

const onEvict = (): 'busy' => 'busy';
const notBytes: readonly unknown[] = [-1, 1.5, Number.NaN, 2 ** 53, Number.POSITIVE_INFINITY];

/** A stream that nobody else's fault may disturb: begun before, ended after. */
class Bystander {
  readonly #stop = new AbortController();
  readonly #ended: Promise<string>;
  tokens = 0;

  constructor(orchestrator: Orchestrator) {
    this.#ended = this.#stream(orchestrator);
  }

  async goesOn(): Promise<void> {
    const before = this.tokens;
    await until('the bystander to hear more', () => this.tokens > before);
  }

  /** Why it ended: `request_cancelled` when it was we who ended it. */
  stop(): Promise<string> {
    this.#stop.abort();
    return this.#ended;
  }

  async #stream(orchestrator: Orchestrator): Promise<string> {
    try {
      for await (const token of orchestrator.generate('steady', 'on and on', { signal: this.#stop.signal, maxTokens: 100_000 })) this.tokens += token.ids.length;
      return 'it ended by itself';
    } catch (error) {
      return LeaseholdError.from(error).code;
    }
  }
}

const steady = scripted({ weightsBytes: MiB, contextBytesPerToken: 0, textTimes: 50_000, text: 'la la ', tokensPerSecond: 100 }, { contextTokens: 200_000 });

const charges = ({ leases }: LedgerState): unknown => leases.map(({ lease, chargedBytes }) => [lease, chargedBytes]);

t.test('bad input, while another session streams', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, models: { steady, huge: scripted({ weightsBytes: 100 * MiB }) } });
  const bystander = new Bystander(orchestrator);
  await bystander.goesOn();
  const before = await orchestrator.ledger();
  const device = before.cards[0]!.device;

  t.test('an unknown card is named, and so are the known ones', async (t) => {
    const error = await refusal(orchestrator.lease({ model: 'm', device: 'GPU-00000000-dead', bytes: MiB, onEvict }));
    t.match(error, { code: 'device_unknown', message: new RegExp(`GPU-00000000-dead; known: ${device}`), help: /leasehold ps/ });
  });

  t.test('byte counts that are none are refused by the library', async (t) => {
    for (const bytes of notBytes as readonly number[]) {
      const error = await refusal(orchestrator.lease({ model: 'm', device, bytes, onEvict }));
      t.match(error, { code: 'bytes_invalid', details: { field: 'bytes', value: String(bytes) }, message: /must be an integer from \d to 9007199254740991 bytes/, help: /whole number/ });
    }
  });

  t.test('and so is a lease of nothing, by the library and by the broker', async (t) => {
    for (const asked of [{ bytes: 0 }, { parts: [] }, { parts: [part(0)] }, { bytes: 0, host: { copyBytes: 0 } }]) {
      const error = await refusal(orchestrator.lease({ model: 'm', device, onEvict, ...asked } as Parameters<Orchestrator['lease']>[0]));
      t.match(error, { code: 'bytes_invalid', details: { field: 'bytes', value: '0' }, message: /bytes is 0; it must be an integer from 1 to \d+ bytes/, help: /whole number/ });
    }
    const odd = await peer(stateFolder, 'holder');
    t.match(await odd.ask(budget(device, { parts: [part(0)] })), { type: 'deny', code: 'bytes_invalid', details: { field: 'bytes', value: '0', minimum: '1' } });
    odd.channel.end();
  });

  t.test('and by the broker, whoever sends them', async (t) => {
    const odd = await peer(stateFolder, 'holder');
    for (const bytes of [...notBytes, '7', null, 2n ** 60n]) {
      const error = await refusal(odd.ask(budget(device, { parts: [part(bytes)] })));
      t.match(error, { code: 'message_invalid', message: /request_vram_budget\.parts.*bytes must be an integer from 0 to 9007199254740991/ }, String(bytes));
    }
    t.match(await refusal(odd.ask({ type: 'card_allocate', device, bytes: 0 })), { code: 'message_invalid', message: /card_allocate\.bytes must be an integer from 1/ });
    // Each a byte count, together none.
    t.match(await odd.ask(budget(device, { parts: [1, 2, 3].map((n) => part(2 ** 52, `p${String(n)}`)) })), { type: 'deny', code: 'bytes_invalid', details: { value: /^\d+$/ } });
    t.match(await odd.ask(budget('SIM-elsewhere-0')), { type: 'deny', code: 'device_unknown', details: { device: 'SIM-elsewhere-0', known: device } });
    odd.channel.end();
  });

  t.test('what is larger than every card is refused at once, with the numbers, and evicts nothing', async (t) => {
    const holder = await refusal(orchestrator.lease({ model: 'm', bytes: 10 ** 12, onEvict }));
    t.match(holder, { code: 'never_fits', details: { model: 'm', device, needBytes: '1100000000000', mostBytes: String(64 * MiB) }, help: /larger card/ });
    const model = await refusal(orchestrator.load('huge'));
    t.match(model, { code: 'never_fits', details: { mostBytes: String(64 * MiB), explain: /-x\d+$/ } });
    t.match((await orchestrator.explain(model.details['explain']))[0], { verdict: 'denied', numbers: { totalBytes: 64 * MiB } });
    t.equal((await orchestrator.ledger()).counters['evictions'], 0);
  });

  t.test('a frame of 4 GiB is refused by its length, before the greeting and after it', async (t) => {
    const rssBytes = residentBytes();
    const stranger = await rawPeer(orchestrator.socketPath);
    stranger.socket.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
    await stranger.closed;
    t.match(stranger.received().toString('latin1'), /frame_too_large.*4294967295.*4096/);
    const known = await peer(stateFolder, 'client');
    t.equal((await refusal(known.ask({ type: 'explain', explain: null, model: 'x'.repeat(9 * MiB), count: 1 }))).code, 'frame_too_large', 'nobody of ours would send one');
    known.channel.end();
    t.ok(residentBytes() - rssBytes < 200 * MiB, 'and no room was made for it');
  });

  t.test('an answer to nothing is ignored', async (t) => {
    const odd = await peer(stateFolder, 'holder');
    odd.say({ type: 'done', id: 77, target: 'none', freedBytes: 2 ** 40, residentBytes: 0, hostBytes: 0 });
    t.equal((await odd.ask({ type: 'explain', explain: null, model: null, count: 1 })).type, 'explanation', 'and the session lives on');
    odd.channel.end();
  });

  t.test('what was never held cannot be given back', async (t) => {
    const odd = await peer(stateFolder, 'holder');
    const grant = await odd.ask(budget(device));
    if (grant.type !== 'grant') throw new Error(grant.type);
    odd.say({ type: 'loading', lease: grant.lease });
    await odd.ask({ type: 'residency', seq: 1, lease: grant.lease, model: 'odd', state: 'resident', residentBytes: MiB, hostBytes: 0, parts: null, loadMs: 1 });
    const asker = await peer(stateFolder, 'client');
    const evicted = asker.ask({ type: 'evict', model: 'odd', target: 'none', deadlineMs: 5_000 });
    const command = await until('the command', () => odd.heard.find((message) => message.type === 'model_to_device'));
    odd.say({ type: 'done', id: (command as { readonly id: number }).id, target: 'none', freedBytes: 2 ** 40, residentBytes: 0, hostBytes: 0 });
    t.match(await evicted, { type: 'evicted', freedBytes: MiB }, 'what was held is freed and no more');
    t.equal((await orchestrator.ledger()).counters['moreFreedThanHeld'], 1);
    t.match((await asker.ask({ type: 'explain', explain: null, model: 'odd', count: 20 })), { records: [/./] });
    const twice = await refusal(odd.ask({ type: 'residency', seq: 2, lease: grant.lease, model: 'odd', state: 'resident', residentBytes: MiB, hostBytes: 0, parts: null, loadMs: 1 }));
    t.match(twice, { code: 'lease_unknown', details: { lease: grant.lease } });
    t.match(await refusal(odd.ask({ type: 'card_free', device, allocation: 4_711 })), { code: 'input_invalid', message: /holds no allocation 4711 on SIM-/ });
    odd.channel.end();
    asker.channel.end();
  });

  t.test('a second broker on this folder is refused and told who is first, in this process and in another', async (t) => {
    const here = await refusal(open(t, { stateFolder }));
    t.match(here, { code: 'broker_running', details: { path: join(stateFolder, 'broker.lock'), pid: String(process.pid), started: /^\d{4}-/ }, help: /attach/ });
    const elsewhere = startHost(t, { stateFolder, broker: 'own', devices: ['sim:1MiB'] });
    t.match(await elsewhere.hear('refused'), { code: 'broker_running', details: { pid: String(process.pid) } });
    t.equal(await elsewhere.exited, 1);
    const alias = join(folder(t), 'alias');
    symlinkSync(stateFolder, alias);
    t.match(await refusal(open(t, { stateFolder: alias })), { code: /^(broker_running|config_unreadable)$/ }, 'by another name, too');
  });

  t.test('a folder whose sockets could not be named is refused before anything is made', async (t) => {
    const parent = folder(t);
    for (const characters of [85, 130]) {
      const deep = join(parent, 'd'.repeat(Math.max(1, characters - parent.length - 1)));
      const error = await refusal(open(t, { stateFolder: deep }));
      t.match(error, { code: 'socket_path_too_long', details: { limitBytes: '107' }, help: /LEASEHOLD_STATE/ }, `B181: ${String(characters)} characters`);
      t.notOk(existsSync(deep));
    }
  });

  t.strictSame(charges(await orchestrator.ledger()), charges(before), 'nothing was lost, and nothing is left of it');
  await bystander.goesOn();
  t.equal(await bystander.stop(), 'request_cancelled', 'the bystander was disturbed by nobody');
  t.equal((await card(orchestrator)).oomRefusals, 0);
});
