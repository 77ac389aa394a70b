// Bodies out of chunks, in turns of the loop: of one peer so many, and then whoever else has something to say.
import t from 'tap';
import { frameOf } from '../../protocol/index.js';
import { BodyReader, bodiesPerTurnMax } from '../../protocol/node/body-reader.js';

interface Bench {
  readonly reader: BodyReader;
  readonly heard: number[];
  readonly turns: string[];
}

function bench(onBody: (reader: BodyReader, first: number) => void = () => undefined): Bench {
  const heard: number[] = [];
  const turns: string[] = [];
  const reader: BodyReader = new BodyReader(16, {
    onBody: (body) => {
      const first = body[0] ?? 0;
      heard.push(first);
      onBody(reader, first);
    },
    onFault: () => turns.push('fault'),
    onTurnSpent: () => turns.push('spent'),
    onNextTurn: () => turns.push('next'),
  });
  return { reader, heard, turns };
}

const count = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, at) => (from + at) % 256);
const frames = (from: number, to: number): Buffer => Buffer.concat(count(from, to).map((first) => frameOf(Uint8Array.of(first))));
const nextTurn = (): Promise<void> => new Promise(setImmediate);

t.test('of a thousand bodies in one chunk sixty-four are handed out a turn, in order, and reading rests meanwhile', async (t) => {
  const { reader, heard, turns } = bench();
  reader.push(frames(0, 1_000));
  for (let turn = 1; turn * bodiesPerTurnMax < 1_000; turn++) {
    t.equal(heard.length, turn * bodiesPerTurnMax);
    t.equal(turns.at(-1), 'spent');
    t.equal(reader.heldBytes, 1_000 - heard.length, 'what waits is counted');
    await nextTurn();
  }
  t.strictSame(heard, count(0, 1_000));
  t.strictSame(turns.slice(-2), ['spent', 'next'], 'and then it is read on, once');
  t.equal(turns.filter((turn) => turn === 'next').length, 1);
});

t.test('as many as a turn has are handed out at once, and nothing rests', async (t) => {
  const { reader, heard, turns } = bench();
  reader.push(frames(0, bodiesPerTurnMax));
  reader.push(frames(0, bodiesPerTurnMax));
  t.equal(heard.length, 2 * bodiesPerTurnMax, 'in two chunks, between which reading could have been stopped');
  t.strictSame(turns, []);
});

t.test('one that was work enough ends its peer’s turn; what comes meanwhile keeps its place', async (t) => {
  const { reader, heard, turns } = bench((own, first) => { if (first === 1) own.spendTurn(); });
  reader.push(frames(0, 3));
  reader.push(frames(3, 5));
  t.strictSame(heard, [0, 1]);
  await nextTurn();
  t.strictSame(heard, [0, 1, 2, 3, 4]);
  t.strictSame(turns, ['spent', 'next']);
});

t.test('a stop, a pause and the end of the stream are as they are in any other turn', async (t) => {
  const paused = bench((own, first) => { if (first === 0) own.spendTurn(); });
  paused.reader.push(frames(0, 3));
  paused.reader.pause();
  await nextTurn();
  t.strictSame(paused.heard, [0], 'a pause outlasts the turn');
  paused.reader.resume();
  t.strictSame(paused.heard, [0, 1, 2]);

  const ended = bench();
  ended.reader.push(frames(0, 200));
  ended.reader.flush();
  t.strictSame(ended.heard, count(0, 200), 'nothing more will come: all of it');
  await nextTurn();
  t.equal(ended.heard.length, 200);

  const stopped = bench();
  stopped.reader.push(frames(0, 200));
  stopped.reader.stop();
  await nextTurn();
  t.equal(stopped.heard.length, bodiesPerTurnMax);
  t.equal(stopped.reader.heldBytes, 0);
});
