/** What a listener holds for all its peers together is bounded, and it is the one that has most of it who pays. */
import t, { type Test } from 'tap';
import { defaultLimits, type LeaseholdError } from '../../protocol/index.js';
import { HeldTotal, openChannel, type ByteStream, type Holding } from '../../protocol/node/index.js';
import { folder, open, peer, scripted, until } from '../integration/support.js';
import { hello, promise, streams, welcome, type Carrier } from './support.js';

interface Fake extends Holding {
  heldBytes: number;
  readonly ends: LeaseholdError[];
}

function fake(heldBytes: number, spared = false): Fake {
  const ends: LeaseholdError[] = [];
  return { heldBytes, spared, ends, cutOff(error) { ends.push(error); this.heldBytes = 0; } };
}

/** All of them in one sum of at most 1,600 bytes, and what each has then. */
function after(holdings: readonly Fake[]): readonly number[] {
  const total = new HeldTotal(1_600);
  for (const holding of holdings) total.join(holding);
  for (const { heldBytes } of holdings) total.took(heldBytes);
  return holdings.map(({ heldBytes }) => heldBytes);
}

t.test('whoever has most is cut off, and only as many as it takes', (t) => {
  t.strictSame(after([fake(500), fake(600), fake(500)]), [500, 600, 500], 'just at the limit');
  t.strictSame(after([fake(500), fake(700), fake(500)]), [500, 0, 500]);
  t.strictSame(after([fake(1_000), fake(900), fake(800), fake(1)]), [0, 0, 800, 1]);
  const most = fake(1_700);
  after([most, fake(10)]);
  t.match(most.ends, [{ code: 'peers_hold_too_much', retryable: true, details: { bytes: '1710', limitBytes: '1600', ownBytes: '1700' } }]);
  t.end();
});

t.test('who is spared goes last, but nobody goes who has little', (t) => {
  t.strictSame(after([fake(900, true), fake(800), fake(100)]), [900, 0, 100], 'a client before a worker that has more');
  t.strictSame(after([fake(900, true), fake(900, true), fake(10), fake(10)]), [0, 900, 10, 10], 'to end those who have little would free nothing');
  t.strictSame(after([fake(600, true), fake(600, true), fake(600, true)]), [0, 600, 600]);
  t.end();
});

t.test('what has been read since is not held against anybody, and who has left does not count', (t) => {
  const total = new HeldTotal(1_600);
  const reads = fake(0);
  const leave = total.join(reads);
  for (let turn = 0; turn < 100; turn++) total.took(1_000);
  t.strictSame(reads.ends, []);
  reads.heldBytes = 1_500;
  leave();
  const other = fake(1_000);
  total.join(other);
  total.took(1_000);
  t.strictSame([reads.ends, other.ends], [[], []]);
  t.end();
});

const room = 256 * 1024;
const limits = { ...defaultLimits, frameBytesMax: room, outgoingBytesMax: room };

/** A broker's end whose peer says hello and then whatever the test wants, byte by byte. */
async function member(t: Test, carrier: Carrier, total: HeldTotal): Promise<{ readonly channel: ReturnType<typeof openChannel<'control'>>; readonly far: ByteStream; readonly closed: Promise<LeaseholdError> }> {
  const [near, far] = await streams(t, carrier);
  const closed = promise<LeaseholdError>();
  const greeted = promise<void>();
  const channel = openChannel(near, {
    plane: 'control', side: 'broker', limits, total,
    handlers: {
      onMessage: (message) => {
        if (message.type !== 'hello') return;
        channel.send({ ...welcome, id: message.id, frameBytesMax: room });
        greeted.resolve();
      },
      onClose: closed.resolve,
    },
  });
  const peer = openChannel(far, { plane: 'control', side: 'client', limits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
  void peer.request({ ...hello, role: 'client', spawn: null }, { timeoutMs: 10_000 }).catch(() => undefined);
  await greeted.promise;
  return { channel, far, closed: closed.promise };
}

for (const carrier of ['memory', 'socket'] as const) {
  t.test(`over ${carrier}: what peers do not read, and frames that never come whole, count together`, async (t) => {
    const total = new HeldTotal(3.6 * room);
    const unread = [];
    for (let index = 0; index < 3; index++) unread.push(await member(t, carrier, total));
    for (const { channel, far } of unread) {
      far.pause();
      // What the system itself takes for a socket is not ours, and is taken in the next turn.
      await until('it to be full', async () => {
        while (channel.unsentBytes < room * 0.9) channel.send({ type: 'event', seq: 1, atUs: 1, name: 'x', json: 'x'.repeat(10_000), dropped: 0 });
        await new Promise((resolve) => { setImmediate(resolve); });
        return channel.unsentBytes > room * 0.85;
      });
    }
    const slow = await member(t, carrier, total);
    const frame = Buffer.alloc(room * 0.45);
    frame.writeUInt32BE(room, 0);
    slow.far.write(frame);
    await until('the frame', () => (slow.channel as unknown as Holding).heldBytes >= frame.length - 4);
    t.strictSame([...unread, slow].map(({ channel }) => channel.open), [true, true, true, true]);
    const more = await member(t, carrier, total);
    more.far.write(frame);
    const first = await Promise.race([...unread, slow, more].map((each) => each.closed));
    t.equal(first.code, 'peers_hold_too_much');
    t.strictSame([slow, more].map(({ channel }) => channel.open), [true, true], 'it was one of those that had more');
    t.equal(unread.filter(({ channel }) => channel.open).length, 2);
  });
}

t.test('clients that read nothing cost a broker what all may hold together; workers and those who read go on', async (t) => {
  const stateFolder = folder(t);
  const heldTotalBytesMax = 1024 * 1024;
  const orchestrator = await open(t, { stateFolder, models: { m: scripted({ text: 'hello' }) }, limits: { frameBytesMax: 512 * 1024, outgoingBytesMax: 512 * 1024, heldTotalBytesMax } });
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
  const before = (await orchestrator.ledger()).workers.map(({ pid }) => pid);
  const deaf = await Promise.all(Array.from({ length: 12 }, () => peer(stateFolder, 'client')));
  const here = async (): Promise<number> => (await orchestrator.ledger()).processes.filter(({ generation }) => deaf.some((other) => other.generation === generation)).length;
  t.equal(await here(), deaf.length);
  for (const { channel } of deaf) channel.pause();
  // Each asks for about as much as it may be owed alone.
  for (let turn = 0; turn < 400; turn++) for (const each of deaf) each.say({ type: 'ledger', id: turn + 1 });
  await until('the first to go', async () => await here() < deaf.length);
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
  t.strictSame((await orchestrator.ledger()).workers.map(({ pid }) => pid), before, 'the worker is the one from before');
  for (const { channel } of deaf) channel.destroy();
});
