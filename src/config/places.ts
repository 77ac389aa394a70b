/** Where each value of a parsed document stands in its text, however many there are: it is gone through once. */
import type { Alias, Document, Node, Pair, YAMLMap } from 'yaml';
import { shown, type Pointer } from './fault.js';

type Yaml = typeof import('yaml');

/** Keys and values of one file, those behind aliases counted each time: 10,000 models said at length. To tell what is wrong with each of more would take minutes. */
const nodesMax = 200_000;
/** Aliases (`*name`) one file may use: generous for people, far below what a bomb needs. */
const aliasesMax = 100;

export interface Places {
  /** What no configuration has: a key twice in a map, an alias of nothing, or more of something than is read. */
  readonly faults: readonly TextFault[];
  /** There is more of something than is read: nothing of it is. */
  readonly isTooMuch: boolean;
  /** Where a value (or its key) begins; the nearest enclosing one when it is not in the text. */
  offsetOf(pointer: Pointer, part: 'key' | 'value'): number;
}

interface TextFault {
  readonly offset: number;
  readonly reason: string;
  /** Where what it clashes with stands. */
  readonly firstOffset?: number;
}

/** More faults of the text than this are not looked for. */
const faultsMax = 100;

type Entry = Pick<Pair, 'key' | 'value'>;

export function placesOf(yaml: Yaml, document: Document.Parsed): Places {
  const survey = new Survey(yaml);
  survey.take(document.contents);
  return { faults: survey.faults, isTooMuch: survey.isTooMuch, offsetOf: (pointer, part) => survey.offsetOf(document.contents, pointer, part) };
}

class Survey {
  readonly #yaml: Yaml;
  readonly #entries = new Map<YAMLMap, ReadonlyMap<string, Entry>>();
  /** The latest node of each anchor's name. */
  readonly #anchors = new Map<string, unknown>();
  readonly #resolved = new Map<Alias, unknown>();
  /** Nodes at and below each anchor, once it has been gone through. */
  readonly #sizes = new Map<unknown, number>();
  #nodes = 0;
  readonly faults: TextFault[] = [];
  isTooMuch = false;

  constructor(yaml: Yaml) {
    this.#yaml = yaml;
  }

  /** In the order of the text, so that an alias finds the anchor before it. */
  take(node: unknown): void {
    const before = this.#nodes;
    this.#count(node, 1);
    if (this.#nodes > nodesMax) return;
    const { anchor } = (node ?? {}) as { readonly anchor?: string };
    if (anchor !== undefined) this.#anchors.set(anchor, node);
    if (this.#yaml.isAlias(node)) this.#takeAlias(node);
    else if (this.#yaml.isSeq(node)) for (const item of node.items) this.take(item);
    else if (this.#yaml.isMap(node)) this.#takeMap(node);
    if (anchor !== undefined) this.#sizes.set(node, this.#nodes - before);
  }

  offsetOf(contents: unknown, pointer: Pointer, part: 'key' | 'value'): number {
    let node = contents;
    let offset = rangeStart(node) ?? 0;
    for (const [depth, step] of pointer.entries()) {
      const entry = this.#child(node, step);
      if (entry === null) return offset;
      const wanted = depth === pointer.length - 1 && part === 'key' ? entry.key : entry.value;
      offset = rangeStart(wanted) ?? rangeStart(entry.key) ?? offset;
      node = entry.value;
    }
    return offset;
  }

  #takeMap(map: YAMLMap): void {
    const entries = new Map<string, Entry>();
    this.#entries.set(map, entries);
    for (const pair of map.items) {
      // Only scalars name anything here: the parser has refused every other key.
      const name = this.#yaml.isScalar(pair.key) ? String(pair.key.value) : String(pair.key);
      const first = entries.get(name);
      if (first === undefined) entries.set(name, pair);
      else this.#refuse(pair.key, `the key ${shown(name)} is there twice`, rangeStart(first.key) ?? 0);
      this.#count(pair.key, 1);
      this.take(pair.value);
    }
  }

  #takeAlias(alias: Alias): void {
    const target = this.#anchors.get(alias.source);
    this.#resolved.set(alias, target);
    const size = this.#sizes.get(target);
    // None of these has a value.
    if (target === undefined) this.#tooMuch(alias, `there is no &${alias.source} before it`);
    else if (size === undefined) this.#tooMuch(alias, `&${alias.source} would hold itself`);
    else if (this.#resolved.size > aliasesMax) this.#tooMuch(alias, `at most ${aliasesMax} aliases are followed`);
    else this.#count(alias, size);
  }

  #count(node: unknown, nodes: number): void {
    this.#nodes += nodes;
    if (this.#nodes > nodesMax) this.#tooMuch(node, `at most ${nodesMax} keys and values are read`);
  }

  #refuse(node: unknown, reason: string, firstOffset?: number): void {
    if (this.faults.length < faultsMax) this.faults.push({ offset: rangeStart(node) ?? 0, reason, ...(firstOffset === undefined ? {} : { firstOffset }) });
  }

  /** One is told: the others of its kind say no more. */
  #tooMuch(node: unknown, reason: string): void {
    if (!this.isTooMuch) this.#refuse(node, reason);
    this.isTooMuch = true;
  }

  #child(node: unknown, step: string | number): Entry | null {
    const target = this.#yaml.isAlias(node) ? this.#resolved.get(node) : node;
    if (this.#yaml.isSeq(target) && typeof step === 'number') {
      const item: unknown = target.items[step];
      return item === undefined ? null : { key: item, value: item };
    }
    return this.#yaml.isMap(target) ? this.#entries.get(target)?.get(String(step)) ?? null : null;
  }
}

function rangeStart(node: unknown): number | null {
  return (node as Node | null)?.range?.[0] ?? null;
}
