/**
 * A door among everything that can happen to it: a shadow of what is really
 * held and running, driven by choices, that throws when the door and the truth
 * part ways.
 */
import assert from 'node:assert/strict';
import { createDoor, stepDoor, type Door, type DoorAction, type DoorCommand, type DoorEvent } from '../../workers/runtime/door.js';

export interface Choice {
  readonly pick: number;
  readonly detail: number;
}

type Untimed<E> = E extends unknown ? Omit<E, 'atUs'> : never;
type Event = Untimed<DoorEvent>;
type Named = readonly [name: string, run: (detail: number) => void];

const drainBatchMax = 3;

export class DoorWorld {
  readonly #door: Door = createDoor({ drainBatchMax, queuedCallsMax: 6, retryAfterMs: 1_000, growAfterUs: 5, growPauseUs: 20 });
  #atUs = 1;
  #calls = 0;
  #commands = 0;
  #leases = 0;
  /** The lease under which bytes may be on the card or in host RAM; null: none are. */
  #held: string | null = null;
  #asking: { readonly lease: string | null } | null = null;
  #loading: { readonly lease: string } | null = null;
  #moving: Extract<DoorAction, { type: 'move' }> | null = null;
  #contextAsked: { readonly name: string; readonly tokens: number; readonly replaces: readonly string[] } | null = null;
  readonly #waiting = new Set<number>();
  readonly #running = new Map<number, string | null>();
  readonly #openCommands = new Map<number, DoorCommand>();
  /** Calls begun since the door was shut for the command that is draining. */
  #begunBehindDoor = 0;
  #drainingCommand: number | null = null;

  /** Lets one of the things that can happen now happen. */
  act(choice: Choice): void {
    const possible = this.#possible();
    const [, run] = possible[choice.pick % possible.length] as Named;
    run(choice.detail);
  }

  /** Faults stop: everything that is open ends well, until nothing is. */
  settle(): void {
    for (let round = 0; round < 10_000; round++) {
      const next = this.#endings()[0];
      if (next !== undefined) {
        next[1](0);
      } else if (this.#door.underway !== null || this.#door.later.length > 0) {
        this.#atUs += 1_000_000;
        this.#feed({ type: 'ticked' });
      } else {
        return;
      }
    }
    assert.fail('it never settles');
  }

  assertSettled(): void {
    assert.equal(this.#door.begun.size, 0, 'no call is counted as begun');
    assert.equal(this.#door.queue.length, 0, 'no call is left waiting');
    assert.equal(this.#waiting.size + this.#running.size, 0, 'every call has ended');
    assert.equal(this.#openCommands.size, 0, 'every command has its one answer');
    assert.ok(['absent', 'resident', 'parked', 'unloading'].includes(this.#door.residency.kind), `settled as ${this.#door.residency.kind}`);
  }

  close(): void {
    this.#feed({ type: 'closed' });
    this.settle();
  }

  assertGone(): void {
    const { residency } = this.#door;
    if (residency.kind === 'unloading' && residency.stuck) return;
    assert.equal(residency.kind, 'absent');
    assert.equal(this.#held, null, 'nothing is held');
  }

  #possible(): Named[] {
    const waiting = [...this.#waiting];
    const commands = [...this.#openCommands.keys()];
    const cancel = (detail: number): void => {
      const call = waiting[detail % waiting.length] as number;
      this.#waiting.delete(call);
      this.#feed({ type: 'call_cancelled', call });
    };
    return [
      ['call', (detail) => { this.#call(detail); }],
      ['call', (detail) => { this.#call(detail); }],
      ['command', (detail) => { this.#command(detail); }],
      ['time', (detail) => {
        this.#atUs += detail;
        this.#feed({ type: 'ticked' });
      }],
      ...(waiting.length > 0 ? [['cancel', cancel] as const] : []),
      ...(commands.length > 0 ? [['take back', (detail: number) => { this.#feed({ type: 'command_cancelled', command: commands[detail % commands.length] as number }); }] as const] : []),
      ...this.#endings(),
    ];
  }

  /** What is open and can end; detail 0 ends it well. */
  #endings(): Named[] {
    const found: Named[] = [];
    if (this.#asking !== null) found.push(['answer', (detail) => { this.#answerAsk(detail); }]);
    if (this.#loading !== null) found.push(['load ends', (detail) => { this.#endLoad(detail); }]);
    if (this.#moving !== null) found.push(['move ends', (detail) => { this.#endMove(detail); }]);
    if (this.#contextAsked !== null) found.push(['context', (detail) => { this.#answerContext(detail); }]);
    for (const call of this.#running.keys()) {
      found.push(['call ends', () => {
        this.#running.delete(call);
        this.#feed({ type: 'call_ended', call });
      }]);
    }
    return found;
  }

  #call(detail: number): void {
    this.#calls += 1;
    const id = this.#calls;
    this.#waiting.add(id);
    const needs = detail % 5 === 0 ? 'model' : 'slot';
    this.#feed({ type: 'call_arrived', parallel: 1 + (detail % 3), call: { id, arrivedAtUs: this.#atUs, needs, tokens: [100, 100, 200, 300][detail % 4] as number } });
  }

  #command(detail: number): void {
    this.#commands += 1;
    const lease = detail % 11 === 0 || this.#held === null ? 'b-l999' : this.#held;
    const command: DoorCommand = {
      id: this.#commands, lease, target: (['none', 'host', 'none', 'device'] as const)[detail % 4] as 'none', bytes: detail % 7 === 0 ? 5 : null,
      when: detail % 3 === 0 ? 'now' : 'drained', waiterSinceUs: detail % 2 === 0 ? null : this.#atUs - (detail % 40), expiresAtUs: this.#atUs + (detail % 90),
    };
    this.#openCommands.set(command.id, command);
    this.#feed({ type: 'command_arrived', command });
  }

  #answerAsk(detail: number): void {
    const asked = this.#asking;
    this.#asking = null;
    if (detail % 4 === 3) {
      this.#feed({ type: 'load_denied', failure: { code: 'never_fits', details: {} } });
      return;
    }
    this.#leases += 1;
    this.#feed({ type: 'load_granted', lease: asked?.lease ?? `b-l${String(this.#leases)}` });
  }

  #endLoad(detail: number): void {
    this.#loading = null;
    if (detail % 3 === 2) {
      this.#held = null;
      this.#feed({ type: 'load_failed', failure: { code: detail % 2 === 0 ? 'out_of_memory' : 'load_failed', details: {} }, freedBytes: 1, hostBytes: 0 });
      return;
    }
    const { residency } = this.#door;
    const slots = residency.kind === 'loading' && residency.phase === 'taking' ? [residency.context] : [];
    this.#feed({ type: 'load_done', parkable: detail % 2 === 0, partial: detail % 5 < 2, slots });
  }

  #endMove(detail: number): void {
    const move = this.#moving;
    assert.ok(move !== null);
    this.#moving = null;
    const slots = move.target === 'device' && move.context !== null ? [move.context] : [];
    if (detail % 5 === 4) {
      const left = move.bytes !== null || move.target === 'host' ? 'resident' : move.target === 'device' ? 'parked' : 'stuck';
      const kept = move.bytes === null ? [] : this.#door.slots.map(({ name, tokens }) => ({ name, tokens }));
      this.#feed({ type: 'move_failed', failure: { code: detail % 2 === 0 ? 'out_of_memory' : 'move_failed', details: {} }, residentBytes: 1, left, slots: kept });
      return;
    }
    if (this.#door.residency.kind === 'unloading') this.#held = null;
    this.#feed({ type: 'move_done', freedBytes: 1, residentBytes: 0, hostBytes: 0, slots });
  }

  #answerContext(detail: number): void {
    const asked = this.#contextAsked;
    assert.ok(asked !== null);
    this.#contextAsked = null;
    const withdrawn = this.#door.growing?.phase === 'asking' && this.#door.growing.withdrawn;
    if (detail % 3 === 2 || (withdrawn && detail % 2 === 0)) this.#feed({ type: 'context_refused', failure: { code: 'never_fits', details: {} }, closed: detail % 5 === 0 ? asked.replaces : [] });
    else this.#feed({ type: 'context_opened', name: asked.name, tokens: asked.tokens });
  }

  #feed(event: Event): void {
    this.#atUs += 1;
    for (const action of stepDoor(this.#door, { ...event, atUs: this.#atUs })) this.#carryOut(action);
    this.#assertTrue();
  }

  #carryOut(action: DoorAction): void {
    switch (action.type) {
      case 'ask':
        assert.equal(this.#asking, null, 'one request at a time');
        assert.equal(action.lease, this.#held, 'a new lease only when none is held, else its own');
        this.#asking = { lease: action.lease };
        return;
      case 'withdraw':
        assert.ok(this.#asking !== null, 'only an open request is taken back');
        this.#asking = null;
        return;
      case 'load':
        assert.ok(this.#loading === null && this.#moving === null && this.#held === null, 'a load begins on nothing');
        this.#loading = { lease: action.lease };
        this.#held = action.lease;
        return;
      case 'move':
        assert.ok(this.#loading === null && this.#moving === null && this.#held === action.lease, 'one motion at a time, of what is held');
        assert.equal(this.#running.size, 0, 'nothing moves under a call');
        assert.ok(this.#contextAsked === null, 'nothing moves while a context comes or goes');
        this.#moving = action;
        return;
      case 'begin':
        this.#begin(action.call, action.slot);
        return;
      case 'fail':
        for (const call of action.calls) assert.ok(this.#waiting.delete(call), 'only waiting calls fail at the door, once');
        return;
      case 'answer':
        this.#answered(action);
        return;
      case 'release':
        if (action.cause !== 'unused') assert.equal(this.#held, null, 'a lease is given up when nothing is held under it');
        return;
      case 'ask_context':
        assert.ok(this.#contextAsked === null, 'one context at a time');
        assert.ok(!action.replaces.some((name) => [...this.#running.values()].includes(name)), 'no context is to go under its call');
        this.#contextAsked = action;
        return;
      case 'abort_load':
        assert.ok(this.#loading !== null, 'only a load is aborted');
        return;
      case 'withdraw_context':
        assert.ok(this.#contextAsked !== null, 'only an open request is taken back');
        return;
    }
  }

  #begin(call: number, slot: string | null): void {
    assert.ok(this.#waiting.delete(call), 'a call begins once');
    assert.equal(this.#door.residency.kind, 'resident', 'calls begin on a resident model');
    assert.ok(slot === null || ![...this.#running.values()].includes(slot), 'one call a context');
    assert.ok(slot === null || this.#contextAsked?.replaces.includes(slot) !== true, 'no call begins on a context that is to go');
    this.#running.set(call, slot);
    const { underway } = this.#door;
    if (underway?.phase === 'draining' && underway.command.id === this.#drainingCommand) this.#begunBehindDoor += 1;
    assert.ok(this.#begunBehindDoor <= drainBatchMax, 'behind a shut door only a batch may begin');
  }

  #answered({ command, answer }: Extract<DoorAction, { type: 'answer' }>): void {
    assert.ok(this.#openCommands.has(command.id), `command ${String(command.id)} is answered while it is open, and finally once`);
    if (answer.kind === 'draining') return;
    this.#openCommands.delete(command.id);
    if (answer.kind === 'done' && answer.target === 'none') assert.equal(this.#held, null, 'never unloaded with memory held (B194)');
  }

  #assertTrue(): void {
    const { residency, begun, underway } = this.#door;
    const draining = underway?.phase === 'draining' ? underway.command.id : null;
    if (draining !== this.#drainingCommand) this.#begunBehindDoor = 0;
    this.#drainingCommand = draining;
    assert.deepEqual([...begun.keys()].sort(), [...this.#running.keys()].sort(), 'what is begun is what runs');
    assert.equal('lease' in residency ? residency.lease : null, this.#held, 'a lease exactly while something is held');
    assert.equal(this.#moving !== null, ['parking', 'unloading', 'resuming'].includes(residency.kind) && !(residency.kind === 'unloading' && residency.stuck) && !(residency.kind === 'resuming' && residency.phase === 'asking'), 'moving as the state says');
    assert.equal(this.#loading !== null, residency.kind === 'loading' && residency.phase !== 'asking', 'loading as the state says');
    assert.equal(this.#asking !== null, (residency.kind === 'loading' || residency.kind === 'resuming') && residency.phase === 'asking', 'asking as the state says');
  }
}
