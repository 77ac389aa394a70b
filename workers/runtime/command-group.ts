/**
 * The broker's commands to one model, which may come once for each of its cards. The first that comes goes to the door;
 * one that wants the same of another card joins it, since the model goes as a whole, and each is answered with it.
 */
import type { DoorAnswer, DoorCommand } from './door-types.js';

export class CommandGroup {
  readonly #answer: (command: DoorCommand, answer: DoorAnswer) => void;
  /** Open commands by the id under which the door has them: that one, and those that joined it. */
  readonly #open = new Map<number, DoorCommand[]>();

  constructor(answer: (command: DoorCommand, answer: DoorAnswer) => void) {
    this.#answer = answer;
  }

  /** True: it has joined one that the door has already. `leases`: those that the model has now. */
  join(command: DoorCommand, leases: readonly string[], inFlight: number): boolean {
    for (const group of this.#open.values()) {
      if (!group.every((other) => wantsTheSame(other, command) && leases.includes(other.lease))) continue;
      group.push(command);
      this.#answer(command, { kind: 'draining', inFlight });
      return true;
    }
    this.#open.set(command.id, [command]);
    return false;
  }

  /** What the door answers to one is answered to all that joined it. */
  answer(id: number, answer: DoorAnswer): void {
    const group = this.#open.get(id) ?? [];
    if (answer.kind !== 'draining') this.#open.delete(id);
    for (const command of group) this.#answer(command, answer);
  }

  /** True: it was one that joined another, and is taken back by itself. */
  cancel(id: number): boolean {
    for (const [lead, group] of this.#open) {
      const joined = group.find((command) => command.id === id);
      if (lead === id || joined === undefined) continue;
      group.splice(group.indexOf(joined), 1);
      this.#answer(joined, { kind: 'failed', failure: { code: 'request_cancelled', details: { what: 'The move' } }, residentBytes: null });
      return true;
    }
    return false;
  }
}

/** Of another card: a second command for the same card is one of its own. */
function wantsTheSame(one: DoorCommand, other: DoorCommand): boolean {
  return one.lease !== other.lease && one.target === other.target && one.bytes === other.bytes && one.when === other.when;
}
