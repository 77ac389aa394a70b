/** Who is not greeted yet: a crowd is read before anybody is judged, and the longest silent make room. */
import t from 'tap';
import { defaultLimits, type LeaseholdError } from '../../protocol/index.js';
import { Anteroom } from '../../protocol/node/index.js';

const limits = { ...defaultLimits, preAuthConnectionsMax: 4 };

/** Connections by number; those that were dropped, in order. */
class Door {
  readonly dropped: string[] = [];
  readonly room: Anteroom<{ destroy(error: LeaseholdError): void }>;
  readonly #heard: (() => void)[] = [];

  constructor(helloPatienceMs: number, freePlaces: number) {
    this.room = new Anteroom({ limits: { ...limits, helloPatienceMs }, freePlaces: () => freePlaces });
  }

  come(name: string): { destroy(error: LeaseholdError): void } {
    const connection = { destroy: (error: LeaseholdError): void => {
      this.dropped.push(`${name} ${error.code}`);
      for (const hear of this.#heard.splice(0)) hear();
    } };
    this.room.enter(connection);
    return connection;
  }

  async hasDropped(count: number): Promise<void> {
    while (this.dropped.length < count) await new Promise<void>((resolve) => { this.#heard.push(resolve); });
  }
}

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => { setImmediate(resolve); });
}

t.test('a crowd that says who it is in the next turn of the loop loses nobody, though no place is to spare', async (t) => {
  const door = new Door(0, 0);
  const crowd = Array.from({ length: 100 }, (_, index) => door.come(String(index)));
  await turns(1);
  for (const connection of crowd) door.room.leave(connection);
  await turns(5);
  t.strictSame(door.dropped, []);
});

t.test('of those that stay silent the longest silent go, down to as many as may stay', async (t) => {
  const door = new Door(0, 100);
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) door.come(name);
  await door.hasDropped(2);
  await turns(5);
  t.strictSame(door.dropped, ['a too_many_sessions', 'b too_many_sessions']);
  t.equal([...door.room].length, 4);
});

t.test('whoever has just come is not dropped for others while places are free, and goes when it has had its time', async (t) => {
  const patient = new Door(600_000, 3);
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'g']) patient.come(name);
  await turns(5);
  t.strictSame(patient.dropped, []);
  patient.come('h');
  await turns(5);
  t.strictSame(patient.dropped, ['a too_many_sessions'], 'one more than there are places');
  const full = new Door(600_000, 1);
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'g']) full.come(name);
  await full.hasDropped(2);
  t.strictSame(full.dropped, ['a too_many_sessions', 'b too_many_sessions'], 'no more than there are places');
  const brief = new Door(20, 100);
  for (const name of ['a', 'b', 'c', 'd', 'e']) brief.come(name);
  // The timer alone keeps no process.
  const keep = setInterval(() => undefined, 1_000);
  await brief.hasDropped(1);
  clearInterval(keep);
  t.strictSame(brief.dropped, ['a too_many_sessions']);
});
