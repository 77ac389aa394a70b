/** Fields of a config.json under the names that families of models give them; what is not there is unknown, and no default stands in for it. */
import { isObject, type JsonObject } from '../formats/config-json.js';
import type { JsonValue } from '../formats/json-scanner.js';
import { UnknownField } from './model-shape.js';

/** Where the language model of a model of several parts is described. */
const nestings: readonly (readonly string[])[] = [['text_config'], ['llm_config'], ['language_config'], ['thinker_config', 'text_config'], ['thinker_config'], ['language_model']];
const countMax = 2 ** 40;

export class Fields {
  private constructor(private readonly object: JsonObject, private readonly path: string) {}

  /** The language model's own fields, wherever they are nested (B04). */
  static ofLanguageModel(config: JsonObject): Fields {
    for (const nesting of nestings) {
      const found = nesting.reduce<JsonValue | undefined>((value, key) => (isObject(value) ? value[key] : undefined), config);
      if (isObject(found)) return new Fields(found, `${nesting.join('.')}.`);
    }
    return new Fields(config, '');
  }

  static of(object: JsonObject, path = ''): Fields {
    return new Fields(object, path);
  }

  /** As messages name a field. */
  named(name: string): string {
    return this.path + name;
  }

  /** The first of `names` that is stated; null is not stated. */
  raw(...names: readonly string[]): JsonValue {
    return names.map((name) => this.object[name]).find((value) => value !== undefined && value !== null) ?? null;
  }

  has(...names: readonly string[]): boolean {
    return this.raw(...names) !== null;
  }

  text(name: string): string | null {
    const value = this.raw(name);
    return typeof value === 'string' ? value : null;
  }

  /** A whole number from `minimum`; `UnknownField` when none of `names` states one. */
  count(names: readonly string[], minimum = 1): number {
    return this.optionalCount(names, minimum) ?? this.#missing(names);
  }

  /** The same; null when none of `names` is stated. */
  optionalCount(names: readonly string[], minimum = 1): number | null {
    const value = this.raw(...names);
    if (value === null) return null;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < minimum || value > countMax) throw new UnknownField(this.#nameOf(names), `it is ${JSON.stringify(value).slice(0, 80)}, no whole number from ${String(minimum)}`);
    return value;
  }

  /** One count a layer, stated once or as a list of the right length (B05); null and 0 in a list are 0. */
  perLayer(names: readonly string[], layers: number): readonly number[] | null {
    const value = this.raw(...names);
    if (!Array.isArray(value)) {
      const same = this.optionalCount(names, 0);
      return same === null ? null : Array.from({ length: layers }, () => same);
    }
    const items = value as readonly JsonValue[];
    const name = this.#nameOf(names);
    if (items.length !== layers) throw new UnknownField(name, `it lists ${String(items.length)} layers, and the model has ${String(layers)}`);
    return items.map((item, index) => {
      const count = item ?? 0;
      if (typeof count !== 'number' || !Number.isSafeInteger(count) || count < 0 || count > countMax) throw new UnknownField(`${name}[${String(index)}]`, `it is ${JSON.stringify(item).slice(0, 80)}, no count`);
      return count;
    });
  }

  #nameOf(names: readonly string[]): string {
    return this.named(names.find((name) => this.has(name)) ?? names[0] ?? '?');
  }

  #missing(names: readonly string[]): never {
    throw new UnknownField(this.named(names[0] ?? '?'), 'it is missing');
  }
}
