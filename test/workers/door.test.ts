/** One model's door: what a table of cases says, and what must hold whatever happens. */
import fc from 'fast-check';
import t from 'tap';
import { createDoor, references, stepDoor, wakeAtUs, type Door, type DoorAction, type DoorCall, type DoorCommand, type DoorEvent } from '../../workers/runtime/door.js';
import { topicOf } from '../../workers/runtime/topic.js';
import { DoorWorld, type Choice } from './door-world.js';

const options = { drainBatchMax: 2, queuedCallsMax: 4, retryAfterMs: 1_000, growAfterUs: 100, growPauseUs: 1_000 };
type Untimed<E> = E extends unknown ? Omit<E, 'atUs'> : never;

/** A door and its clock. */
class Bench {
  readonly door: Door = createDoor(options);
  at = 1_000;

  step(event: Untimed<DoorEvent>): DoorAction[] {
    this.at += 1;
    return stepDoor(this.door, { ...event, atUs: this.at });
  }

  call(id: number, call: Partial<DoorCall> = {}, parallel = 1): DoorAction[] {
    return this.step({ type: 'call_arrived', parallel, call: { id, arrivedAtUs: this.at, needs: 'slot', tokens: 100, ...call } });
  }

  command(id: number, command: Partial<DoorCommand> = {}): DoorAction[] {
    return this.step({ type: 'command_arrived', command: { id, lease: 'b-l1', target: 'none', bytes: null, when: 'drained', waiterSinceUs: null, expiresAtUs: this.at + 1_000_000, ...command } });
  }

  /** Loaded with one context of 100 tokens; call 1 runs on it. */
  loaded(parallel = 1, able: { readonly parkable?: boolean; readonly partial?: boolean } = {}): this {
    this.call(1, {}, parallel);
    this.step({ type: 'load_granted', lease: 'b-l1' });
    this.step({ type: 'load_done', parkable: able.parkable ?? true, partial: able.partial ?? false, slots: [{ name: 'context:1', tokens: 100 }] });
    return this;
  }

  idle(parallel = 1, able: { readonly parkable?: boolean; readonly partial?: boolean } = {}): this {
    this.loaded(parallel, able).step({ type: 'call_ended', call: 1 });
    return this;
  }

  end(call: number): DoorAction[] {
    return this.step({ type: 'call_ended', call });
  }
}

/** Actions in a form that reads well in a test: type and what tells them apart. */
function short(actions: readonly DoorAction[]): string[] {
  return actions.map((action) => {
    switch (action.type) {
      case 'begin': return `begin ${String(action.call)}`;
      case 'fail': return `fail ${action.calls.join(',')} ${action.failure.code}`;
      case 'answer': return `answer ${String(action.command.id)} ${action.answer.kind}${'inFlight' in action.answer ? ` ${String(action.answer.inFlight)}` : ''}${action.answer.kind === 'failed' ? ` ${action.answer.failure.code}` : ''}`;
      case 'move': return `move ${action.target}`;
      case 'release': return `release ${action.cause}`;
      case 'ask': return `ask ${String(action.attempt)}${action.lease === null ? '' : ` for ${action.lease}`}`;
      case 'ask_context': return `ask_context ${String(action.tokens)}${action.required ? ' required' : ''}${action.replaces.length === 0 ? '' : ` for ${action.replaces.join(',')}`}`;
      default: return action.type;
    }
  });
}

const moveDone = { type: 'move_done', freedBytes: 10, residentBytes: 0, hostBytes: 0, slots: [] } as const;

t.test('loading', async (t) => {
  t.test('B77: ten calls for a cold model ask once and load once', async (t) => {
    const bench = new Bench();
    t.strictSame(short(bench.call(1)), ['ask 1']);
    for (let id = 2; id <= 4; id++) t.strictSame(bench.call(id), []);
    t.match(bench.call(5), [{ type: 'fail', calls: [5], failure: { code: 'call_queue_full', details: { limit: 4, retryAfterMs: 1_000 } } }], 'the queue is bounded, and says when to come again');
    t.strictSame(short(bench.step({ type: 'load_granted', lease: 'b-l1' })), ['load']);
  });
  t.test('B64: a request that its last waiter leaves is taken back, and a late grant is given back', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.call(2);
    t.strictSame(bench.step({ type: 'call_cancelled', call: 1 }), []);
    t.strictSame(short(bench.step({ type: 'call_cancelled', call: 2 })), ['withdraw']);
    t.equal(bench.door.residency.kind, 'absent');
    t.strictSame(short(bench.step({ type: 'load_granted', lease: 'b-l1' })), ['release unused']);
  });
  t.test('B65: a load goes on though its only waiter leaves, and the next call joins it', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(bench.step({ type: 'call_cancelled', call: 1 }), []);
    t.strictSame(bench.call(2), []);
    t.strictSame(short(bench.step({ type: 'load_done', parkable: true, partial: false, slots: [{ name: 'context:1', tokens: 100 }] })), ['begin 2']);
  });
  t.test('B22: a full card gets one more try and no third', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    const oom = { type: 'load_failed', failure: { code: 'out_of_memory', details: {} }, freedBytes: 0, hostBytes: 0 } as const;
    t.strictSame(short(bench.step(oom)), ['release load_failed', 'ask 2']);
    bench.step({ type: 'load_granted', lease: 'b-l2' });
    t.strictSame(short(bench.step(oom)), ['release load_failed', 'fail 1 out_of_memory']);
    t.equal(bench.door.residency.kind, 'absent');
  });
  t.test('a refusal and any other failure reach every caller that waited', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.call(2);
    t.strictSame(short(bench.step({ type: 'load_denied', failure: { code: 'never_fits', details: {} } })), ['fail 1,2 never_fits']);
    bench.call(3);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(short(bench.step({ type: 'load_failed', failure: { code: 'load_failed', details: {} }, freedBytes: 0, hostBytes: 0 })), ['release load_failed', 'fail 3 load_failed']);
  });
});

t.test('the door', async (t) => {
  t.test('B193: a busy model says so at once, and nothing has changed', async (t) => {
    const bench = new Bench().loaded();
    t.strictSame(short(bench.command(7, { when: 'now' })), ['answer 7 busy 1']);
    t.equal(bench.door.underway, null);
    bench.end(1);
    t.strictSame(short(bench.call(2)), ['begin 2']);
  });
  t.test('B193: a command that expires before it begins is not begun any more', async (t) => {
    const bench = new Bench().loaded();
    bench.command(7, { expiresAtUs: bench.at + 50 });
    bench.call(2);
    t.equal(wakeAtUs(bench.door), bench.door.underway?.command.expiresAtUs);
    bench.at += 60;
    t.strictSame(short(bench.step({ type: 'ticked' })), ['answer 7 failed command_expired']);
    t.strictSame(short(bench.end(1)), ['begin 2'], 'the door is open again');
  });
  t.test('D20: behind a shut door the begun and at most drainBatchMax older calls finish first, younger ones queue', async (t) => {
    const bench = new Bench().loaded();
    for (const id of [2, 3, 4]) bench.call(id, { arrivedAtUs: 500 + id });
    t.strictSame(short(bench.command(7, { waiterSinceUs: 900 })), ['answer 7 draining 3']);
    t.strictSame(bench.call(5), [], 'taken into the queue');
    t.strictSame(short(bench.end(1)), ['begin 2']);
    t.strictSame(short(bench.end(2)), ['begin 3']);
    t.strictSame(short(bench.end(3)), ['move none'], 'call 4 is older too, but the batch is spent');
    t.strictSame(short(bench.step(moveDone)), ['answer 7 done', 'ask 1'], 'those who queued load it again');
    t.same(bench.door.queue.map(({ id }) => id), [4, 5]);
  });
  t.test('D21: a client never opens a shut door; the broker may, until the move has begun', async (t) => {
    const bench = new Bench().loaded();
    bench.command(7, { waiterSinceUs: 0 });
    bench.call(2);
    t.strictSame(short(bench.step({ type: 'call_cancelled', call: 2 })), []);
    t.equal(bench.door.underway?.phase, 'draining');
    bench.call(3);
    t.strictSame(short(bench.step({ type: 'command_cancelled', command: 7 })), ['answer 7 failed request_cancelled']);
    t.strictSame(short(bench.end(1)), ['begin 3']);
    bench.command(8, { waiterSinceUs: 0 });
    t.strictSame(short(bench.end(3)), ['move none']);
    t.strictSame(bench.step({ type: 'command_cancelled', command: 8 }), [], 'too late: it is done');
    t.strictSame(short(bench.step(moveDone)), ['answer 8 done']);
  });
  t.test('B74: a queued call holds a reference from its arrival, so a load that is done is not idle', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(short(bench.command(7, { when: 'now' })), ['answer 7 busy 1']);
    t.equal(references(bench.door), 1);
  });
  t.test('B74: a call during an eviction waits, and the model is loaded again for it', async (t) => {
    const bench = new Bench().idle();
    t.strictSame(short(bench.command(7, { when: 'now' })), ['answer 7 draining 0', 'move none']);
    t.strictSame(bench.call(2), []);
    t.strictSame(short(bench.step(moveDone)), ['answer 7 done', 'ask 1']);
  });
  t.test('commands in one another’s way: now is busy, drained stands behind', async (t) => {
    const bench = new Bench().loaded();
    bench.command(7);
    t.strictSame(short(bench.command(8, { when: 'now' })), ['answer 8 busy 1']);
    t.strictSame(short(bench.command(9, { target: 'host' })), ['answer 9 draining 1']);
    t.strictSame(short(bench.end(1)), ['move none']);
    t.strictSame(short(bench.step(moveDone)), ['answer 7 done', 'answer 9 failed lease_unknown']);
  });
  t.test('while a move goes on no command is told busy: it is not calls that keep it', async (t) => {
    const bench = new Bench().idle();
    bench.command(7, { target: 'host', when: 'now' });
    t.strictSame(short(bench.command(8, { when: 'now' })), ['answer 8 failed move_failed']);
    bench.call(2);
    t.strictSame(short(bench.command(9, { when: 'now' })), ['answer 9 failed move_failed']);
    t.strictSame(short(bench.command(10)), ['answer 10 draining 1']);
  });
  t.test('a context on its way is no call: the door shuts behind it', async (t) => {
    const bench = new Bench().loaded();
    bench.call(2, { tokens: 500 });
    bench.end(1);
    t.equal(bench.door.growing?.phase, 'asking');
    t.strictSame(short(bench.step({ type: 'call_cancelled', call: 2 })), ['withdraw_context']);
    t.strictSame(short(bench.command(8, { when: 'now' })), ['answer 8 draining 0']);
    t.strictSame(short(bench.step({ type: 'context_opened', name: 'context:2', tokens: 500 })), ['move none'], 'it was too late to take it back');
  });
  t.test('a command for a lease that is not held here is refused', async (t) => {
    t.strictSame(short(new Bench().command(7)), ['answer 7 failed lease_unknown']);
    t.strictSame(short(new Bench().idle().command(7, { lease: 'b-l9' })), ['answer 7 failed lease_unknown']);
  });
});

t.test('moves', async (t) => {
  t.test('parks, and comes back under its own lease for the next call', async (t) => {
    const bench = new Bench().idle();
    t.strictSame(short(bench.command(7, { target: 'host' })), ['answer 7 draining 0', 'move host']);
    t.strictSame(short(bench.step({ ...moveDone, hostBytes: 10 })), ['answer 7 done']);
    t.equal(bench.door.residency.kind, 'parked');
    t.strictSame(short(bench.call(2)), ['ask 1 for b-l1']);
    t.strictSame(short(bench.step({ type: 'load_granted', lease: 'b-l1' })), ['move device']);
    t.strictSame(short(bench.step({ ...moveDone, slots: [{ name: 'context:2', tokens: 100 }] })), ['begin 2']);
  });
  t.test('a lease that is over is not come back under: the copy is dropped, and those who wait ask anew', async (t) => {
    for (const code of ['lease_unknown', 'request_cancelled']) {
      const bench = new Bench().idle();
      bench.command(7, { target: 'host' });
      bench.step(moveDone);
      t.strictSame(short(bench.call(2)), ['ask 1 for b-l1']);
      t.strictSame(short(bench.step({ type: 'load_denied', failure: { code, details: {} } })), ['move none']);
      t.strictSame(short(bench.step(moveDone)), ['release unloaded', 'ask 1'], 'nobody is refused');
    }
  });
  t.test('a copy that does not come back is dropped, and those who wait have the model loaded afresh', async (t) => {
    const failed = (code: string) => ({ type: 'move_failed', failure: { code, details: {} }, residentBytes: 0, left: 'parked', slots: [] }) as const;
    const returning = (): Bench => {
      const bench = new Bench().idle();
      bench.command(7, { target: 'host' });
      bench.step({ ...moveDone, hostBytes: 10 });
      bench.call(2);
      bench.step({ type: 'load_granted', lease: 'b-l1' });
      return bench;
    };
    const broken = returning();
    broken.command(8, { target: 'none' });
    t.strictSame(short(broken.step(failed('move_failed'))), ['move none'], 'the command waits for a move of its lease');
    t.strictSame(short(broken.step(moveDone)), ['release unloaded', 'answer 8 failed lease_unknown', 'ask 1'], 'nobody is refused');
    const full = returning();
    t.strictSame(short(full.step(failed('out_of_memory'))), ['ask 2 for b-l1'], 'B22: a full card gets one more try');
    full.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(short(full.step(failed('out_of_memory'))), ['move none']);
    const left = returning();
    left.step({ type: 'call_cancelled', call: 2 });
    t.strictSame(short(left.step(failed('out_of_memory'))), [], 'nobody waits, and a full card says nothing of the copy');
    t.equal(left.door.residency.kind, 'parked');
  });
  t.test('says what it cannot do', async (t) => {
    t.strictSame(short(new Bench().idle(1, { parkable: false }).command(7, { target: 'host' })), ['answer 7 unsupported']);
    t.strictSame(short(new Bench().idle().command(7, { target: 'host', bytes: 5 })), ['answer 7 unsupported']);
    t.strictSame(short(new Bench().idle().command(7, { target: 'device' })), ['answer 7 already']);
  });
  t.test('a part is freed while the model stays', async (t) => {
    const bench = new Bench().idle(1, { partial: true });
    t.strictSame(short(bench.command(7, { target: 'host', bytes: 5 })), ['answer 7 draining 0', 'move host']);
    t.strictSame(short(bench.step({ ...moveDone, residentBytes: 5 })), ['answer 7 done']);
    t.equal(bench.door.residency.kind, 'resident');
    t.strictSame(short(bench.call(2)), ['begin 2']);
  });
  t.test('an unload that fails serves nobody, and is tried again', async (t) => {
    const bench = new Bench().idle();
    bench.command(7);
    t.strictSame(short(bench.step({ type: 'move_failed', failure: { code: 'move_failed', details: {} }, residentBytes: 10, left: 'stuck', slots: [] })), ['answer 7 failed move_failed']);
    t.strictSame(short(bench.call(2)), ['fail 2 move_failed']);
    t.strictSame(short(bench.command(8, { target: 'host' })), ['answer 8 draining 0', 'move none']);
    t.strictSame(short(bench.step(moveDone)), ['answer 8 done']);
  });
  t.test('B194: a load that nobody eligible waits for is aborted for an unload', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(short(bench.command(7, { waiterSinceUs: 0 })), ['answer 7 draining 0', 'abort_load'], 'call 1 is younger than the waiter');
    t.strictSame(short(bench.step({ type: 'load_failed', failure: { code: 'request_cancelled', details: {} }, freedBytes: 3, hostBytes: 0 })), ['answer 7 done', 'ask 1']);
  });
  t.test('B194: an abort that comes too late becomes an unload', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    bench.command(7, { waiterSinceUs: 0 });
    t.strictSame(short(bench.step({ type: 'load_done', parkable: false, partial: false, slots: [] })), ['move none']);
    t.strictSame(short(bench.step(moveDone)), ['answer 7 done', 'ask 1']);
  });
  t.test('B194: an unload behind eligible calls runs after ready', async (t) => {
    const bench = new Bench();
    bench.call(1);
    bench.step({ type: 'load_granted', lease: 'b-l1' });
    t.strictSame(short(bench.command(7)), ['answer 7 draining 1']);
    t.strictSame(short(bench.step({ type: 'load_done', parkable: false, partial: false, slots: [{ name: 'context:1', tokens: 100 }] })), ['begin 1']);
    t.strictSame(short(bench.end(1)), ['move none']);
  });
  t.test('closing fails who waits, lets the begun end, unloads, and says so', async (t) => {
    const bench = new Bench().loaded();
    bench.call(2);
    t.strictSame(short(bench.step({ type: 'closed' })), ['fail 2 shutting_down']);
    t.strictSame(short(bench.call(3)), ['fail 3 shutting_down']);
    t.strictSame(short(bench.end(1)), ['move none']);
    t.strictSame(short(bench.step(moveDone)), ['release unloaded']);
  });
});

t.test('contexts', async (t) => {
  t.test('a further call gets a context of its own up to parallel; refused, it waits its turn', async (t) => {
    const bench = new Bench().loaded(2);
    t.strictSame(bench.call(2, {}, 2), [], 'a free one may come soon');
    bench.at = wakeAtUs(bench.door) ?? 0;
    t.strictSame(short(bench.step({ type: 'ticked' })), ['ask_context 100']);
    t.strictSame(bench.step({ type: 'context_refused', failure: { code: 'never_fits', details: {} }, closed: [] }), []);
    t.ok((wakeAtUs(bench.door) ?? 0) > bench.at, 'it will ask again, later');
    t.strictSame(short(bench.end(1)), ['begin 2']);
  });
  t.test('a call runs where its conversation ran before, else where none of late did', async (t) => {
    const bench = new Bench().loaded(3);
    for (const name of ['context:2', 'context:3']) {
      bench.call(90, {}, 3);
      bench.at = wakeAtUs(bench.door) ?? 0;
      bench.step({ type: 'ticked' });
      bench.step({ type: 'context_opened', name, tokens: 100 });
      bench.end(90);
    }
    bench.end(1);
    let id = 100;
    const slotOf = (topic: string | null, tokens = 100): string | null => {
      id += 1;
      const [begun] = bench.call(id, { topic, tokens }, 3);
      bench.end(id);
      return begun?.type === 'begin' ? begun.slot : null;
    };
    const [fox, lamp, wood] = [slotOf('fox'), slotOf('lamp'), slotOf('wood')];
    t.equal(new Set([fox, lamp, wood]).size, 3, 'each its own');
    t.same([slotOf('lamp'), slotOf('fox'), slotOf('lamp'), slotOf('wood')], [lamp, fox, lamp, wood]);
    t.equal(slotOf('new'), fox, 'that of the longest silence makes room');
    t.same([slotOf('lamp'), slotOf('wood')], [lamp, wood], 'and no other');
    t.equal(slotOf(null), fox, 'a call without a beginning is none of any');
  });
  t.test('a conversation is known by its beginning, through its first question; a prompt by its first words', async (t) => {
    const talk = (...contents: readonly string[]): string | null => topicOf({ type: 'generate', prompt: null, messages: contents.map((content, index) => ({ role: index === 0 ? 'system' : index % 2 === 1 ? 'user' : 'assistant', content })) });
    t.equal(talk('Be brief.', 'A fox?', 'Yes.', 'Where?'), talk('Be brief.', 'A fox?'));
    t.not(talk('Be brief.', 'A lamp?'), talk('Be brief.', 'A fox?'));
    t.not(talk('Be long.', 'A fox?'), talk('Be brief.', 'A fox?'));
    const prompt = (text: string): string | null => topicOf({ type: 'generate', prompt: text, messages: null });
    t.equal(prompt(`${'once '.repeat(60)}and on`), prompt(`${'once '.repeat(60)}and so on`));
    t.not(prompt('once'), prompt('twice'));
    t.equal(topicOf({ type: 'embed' }), null);
  });
  t.test('a request for a further context is taken back when a free one has served the call', async (t) => {
    const bench = new Bench().loaded(2);
    bench.call(2, { arrivedAtUs: 1 }, 2);
    t.strictSame(short(bench.end(1)), ['begin 2', 'withdraw_context']);
    t.strictSame(short(bench.command(7, { when: 'now' })), ['answer 7 busy 1']);
    bench.end(2);
    t.strictSame(short(bench.command(8)), ['answer 8 draining 0'], 'the move waits for the end of the request');
    t.strictSame(short(bench.step({ type: 'context_refused', failure: { code: 'request_cancelled', details: {} }, closed: [] })), ['move none']);
  });
  t.test('B61: a larger context waits for the running call, replaces its context, and later calls do not starve it', async (t) => {
    const bench = new Bench().loaded();
    t.strictSame(short(bench.call(2, { tokens: 400 })), [], 'the running call is not cut');
    for (const id of [3, 4]) t.strictSame(bench.call(id), []);
    t.strictSame(short(bench.end(1)), ['ask_context 400 required for context:1'], 'the small ones do not slip in');
    t.strictSame(short(bench.step({ type: 'context_opened', name: 'context:2', tokens: 400 })), ['begin 2']);
    t.strictSame(bench.door.slots.map(({ name }) => name), ['context:2']);
    t.strictSame(short(bench.end(2)), ['begin 3'], 'a larger context serves small calls as well');
  });
  t.test('a call that waits for a larger context does not hold a shut door', async (t) => {
    const bench = new Bench().loaded();
    bench.call(2, { tokens: 400 });
    t.strictSame(short(bench.command(7)), ['answer 7 draining 1'], 'call 1 alone is waited for');
    t.strictSame(short(bench.end(1)), ['move none']);
    t.strictSame(short(bench.step(moveDone)), ['answer 7 done', 'ask 1']);
  });
  t.test('a context that can never be had costs only the calls that need it', async (t) => {
    const bench = new Bench().idle();
    t.strictSame(short(bench.call(2, { tokens: 400 })), ['ask_context 400 required for context:1']);
    bench.call(3);
    t.strictSame(short(bench.step({ type: 'context_refused', failure: { code: 'never_fits', details: {} }, closed: [] })), ['fail 2 never_fits', 'begin 3'], 'what was open is, and serves');
  });
  t.test('one that could not be opened after all costs what was closed for it, and that is asked for again', async (t) => {
    const bench = new Bench().idle();
    bench.call(2, { tokens: 400 });
    bench.call(3);
    t.strictSame(short(bench.step({ type: 'context_refused', failure: { code: 'out_of_memory', details: {} }, closed: ['context:1'] })), ['fail 2 out_of_memory', 'ask_context 100 required']);
    t.strictSame(short(bench.step({ type: 'context_opened', name: 'context:3', tokens: 100 })), ['begin 3']);
  });
  t.test('refused beside the smallest it asks in place of more, one by one, and at last of all', async (t) => {
    const bench = new Bench().loaded(2);
    bench.door.slots.push({ name: 'context:9', tokens: 200, call: null, topic: null, retiring: false });
    const refused = () => short(bench.step({ type: 'context_refused', failure: { code: 'never_fits', details: {} }, closed: [] }));
    t.strictSame(short(bench.call(2, { tokens: 400 }, 2)), [], 'the smallest is in use');
    t.strictSame(short(bench.call(3, {}, 2)), ['begin 3'], 'the other still takes calls');
    t.strictSame(short(bench.end(1)), ['ask_context 400 required for context:1']);
    t.strictSame(refused(), []);
    t.strictSame(short(bench.end(3)), ['ask_context 400 required for context:1,context:9']);
    t.strictSame(refused(), ['fail 2 never_fits']);
    t.ok(bench.door.slots.every(({ retiring }) => !retiring));
    t.strictSame(short(bench.call(4, {}, 2)), ['begin 4']);
  });
});

const choices: fc.Arbitrary<Choice[]> = fc.array(fc.record({ pick: fc.nat(999), detail: fc.nat(999) }), { maxLength: 120, size: 'max' });

t.test('whatever happens, in whatever order', async (t) => {
  t.test('no two opposite states, no bytes behind an "unloaded", every call and command ends once, and nothing is left', async (t) => {
    fc.assert(fc.property(choices, (sequence) => {
      const world = new DoorWorld();
      for (const choice of sequence) world.act(choice);
      world.settle();
      world.assertSettled();
      world.close();
      world.assertGone();
    }), { numRuns: 1_000 });
    t.pass('1,000 sequences of up to 120 events');
  });
});
