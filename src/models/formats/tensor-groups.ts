/** Tensors of one kind taken together, so that what is known of 300,000 of them stays small. */

export interface TensorGroup {
  /** The name they share, the numbers in it (of layers, of experts) as `#`: `model.layers.#.mlp.up_proj.weight`. */
  readonly pattern: string;
  /** As the format spells it. */
  readonly dtype: string;
  /** Length of their shapes. */
  readonly dimensions: number;
  /** Of the first of them, as the format orders it; null when they differ. */
  readonly shape: readonly number[] | null;
  readonly tensors: number;
  readonly elements: number;
  /** From offsets, or from blocks of the type; never from a number of parameters (B08). */
  readonly bytes: number;
  readonly largestBytes: number;
}

/** Above it, what a tensor is called no longer tells groups apart: no real model has a tenth of it. */
const groupsMax = 4_096;

export class TensorGroups {
  readonly #groups = new Map<string, { -readonly [Key in keyof TensorGroup]: TensorGroup[Key] }>();

  add(name: string, dtype: string, shape: readonly number[], elements: number, bytes: number): void {
    const dimensions = shape.length;
    const named = name.replace(/(^|\.)\d+(?=\.|$)/g, '$1#');
    const ownKey = keyOf(named, dtype, dimensions);
    const pattern = this.#groups.size < groupsMax || this.#groups.has(ownKey) ? named : '';
    const key = pattern === named ? ownKey : keyOf(pattern, dtype, dimensions);
    const group = this.#groups.get(key) ?? { pattern, dtype, dimensions, shape, tensors: 0, elements: 0, bytes: 0, largestBytes: 0 };
    if (!sameShape(group.shape, shape)) group.shape = null;
    group.tensors += 1;
    group.elements += elements;
    group.bytes += bytes;
    group.largestBytes = Math.max(group.largestBytes, bytes);
    this.#groups.set(key, group);
  }

  all(): readonly TensorGroup[] {
    return [...this.#groups.values()];
  }
}

/** The same groups over several files. */
export function mergeGroups(lists: readonly (readonly TensorGroup[])[]): readonly TensorGroup[] {
  const merged = new Map<string, TensorGroup>();
  for (const group of lists.flat()) {
    const key = keyOf(group.pattern, group.dtype, group.dimensions);
    const known = merged.get(key);
    merged.set(key, known === undefined ? group : {
      ...group,
      shape: sameShape(known.shape, group.shape) ? group.shape : null,
      tensors: known.tensors + group.tensors,
      elements: known.elements + group.elements,
      bytes: known.bytes + group.bytes,
      largestBytes: Math.max(known.largestBytes, group.largestBytes),
    });
  }
  return [...merged.values()];
}

function sameShape(one: readonly number[] | null, other: readonly number[] | null): boolean {
  return one !== null && other !== null && one.length === other.length && one.every((size, index) => size === other[index]);
}

function keyOf(pattern: string, dtype: string, dimensions: number): string {
  return `${pattern}\n${dtype}\n${String(dimensions)}`;
}
