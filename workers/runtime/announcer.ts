/**
 * What the broker has been told this process holds, and what has changed since.
 * Announcements ride on every answer of ours, errors included, and state what
 * is true at that moment (R50-R53): the difference to the last one, by value,
 * so that a model which left and came back is told again.
 */
import type { ModelState, NewModels } from '../../protocol/index.js';

/** Entries that one announcement carries at most; the rest goes with the next. */
const entriesMax = 256;

export class Announcer {
  readonly #current: () => readonly ModelState[];
  readonly #told = new Map<string, string>();
  #seq = 0;

  /** `current` lists every model that is not absent, once for each of its cards. */
  constructor(current: () => readonly ModelState[]) {
    this.#current = current;
  }

  /** The next announcement. It is taken as delivered: answers travel in order on one connection, and a lost connection voids all. */
  next(): NewModels {
    this.#seq += 1;
    const states = byModel(this.#current());
    const added: ModelState[] = [];
    for (const [model, cards] of states) {
      const text = JSON.stringify(cards);
      if (this.#told.get(model) === text || added.length + cards.length > entriesMax) continue;
      this.#told.set(model, text);
      added.push(...cards);
    }
    const removed = [...this.#told.keys()].filter((model) => !states.has(model)).slice(0, entriesMax);
    for (const model of removed) this.#told.delete(model);
    return { seq: this.#seq, added, removed };
  }

  /** On a new connection announcements count anew. */
  reset(): void {
    this.#seq = 0;
    this.#told.clear();
  }

  /** Everything, for reconciliation; counts as told. */
  full(): { readonly seq: number; readonly models: readonly ModelState[] } {
    this.#seq += 1;
    const models = this.#current();
    this.#told.clear();
    for (const [model, cards] of byModel(models)) this.#told.set(model, JSON.stringify(cards));
    return { seq: this.#seq, models };
  }
}

/** A model over several cards has a state on each; they are told together. What it was granted as is told only where everything is. */
function byModel(states: readonly ModelState[]): ReadonlyMap<string, readonly ModelState[]> {
  const models = new Map<string, ModelState[]>();
  for (const { terms: _terms, ...state } of states) models.set(state.model, [...models.get(state.model) ?? [], state]);
  return models;
}
