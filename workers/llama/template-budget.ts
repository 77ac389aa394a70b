/**
 * What the library that interprets chat templates does not count: steps, and the size of what they make. A heap's limit
 * is not enough: one allocation that goes far beyond it ends the process and not the thread, so the heap is larger than
 * the longest text there can be, and what is too large is seen when it was made.
 */
import type { TemplateLibrary } from './library.js';

/** The longest templates in use take a few thousand a message. */
const stepsMax = 5_000_000;
const rangeItemsMax = 100_000;
/** Of one text, the rendered one included: no context takes as much. */
const charactersMax = 16 * 1024 * 1024;
const itemsMax = 1_000_000;
/** Of all that filters, calls and operators make, in characters; an item of a list counts for as much as it takes. */
const madeMax = 256 * 1024 * 1024;
const charactersOfItem = 64;
const makers: ReadonlySet<string> = new Set(['BinaryExpression', 'CallExpression', 'FilterExpression', 'FilterStatement']);

export class TemplateBudget {
  #steps = 0;
  #made = 0;
  #spent = false;

  /** Counts from now on in every interpreter of this copy of the library. */
  constructor({ Environment, Interpreter }: TemplateLibrary) {
    const set = Environment.prototype.set;
    const evaluate = Interpreter.prototype.evaluate;
    const take = (type: string, value: unknown): void => { this.#take(type, value); };
    const spend = (reason: string): never => this.#spend(reason);
    Environment.prototype.set = function (name, value) {
      return set.call(this, name, name === 'range' && typeof value === 'function' ? boundedRange(value as Range, spend) : value);
    };
    Interpreter.prototype.evaluate = function (statement, environment) {
      const value = evaluate.call(this, statement, environment);
      take(statement?.type ?? '', value.value);
      return value;
    };
  }

  /** True once a template has gone beyond it, until the next. */
  get isSpent(): boolean {
    return this.#spent;
  }

  renew(): void {
    this.#steps = 0;
    this.#made = 0;
    this.#spent = false;
  }

  #take(type: string, value: unknown): void {
    if (++this.#steps > stepsMax) this.#spend(`it takes more than ${String(stepsMax)} steps`);
    if (typeof value === 'string' && value.length > charactersMax) this.#spend(`it makes a text of ${String(value.length)} characters`);
    if (Array.isArray(value) && value.length > itemsMax) this.#spend(`it makes a list of ${String(value.length)} items`);
    if (!makers.has(type)) return;
    this.#made += typeof value === 'string' ? value.length : Array.isArray(value) ? value.length * charactersOfItem : 0;
    if (this.#made > madeMax) this.#spend(`it makes texts and lists of more than ${String(madeMax)} characters`);
  }

  #spend(reason: string): never {
    this.#spent = true;
    throw new Error(reason);
  }
}

type Range = (...bounds: readonly unknown[]) => readonly number[];

/** Counted before it is made. */
function boundedRange(range: Range, spend: (reason: string) => never): Range {
  return (...bounds) => {
    const [start = 0, stop = 0, step = 1] = (bounds.length === 1 ? [0, ...bounds] : bounds).map(Number);
    const items = Math.ceil((stop - start) / step);
    if (items > rangeItemsMax) spend(`it counts through ${String(items)} numbers`);
    return range(...bounds);
  };
}
