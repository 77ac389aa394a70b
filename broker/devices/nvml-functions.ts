/** NVML's functions by FFI: the library loaded, each function bound when it is first called, its answer as a code. */
import koffi from 'koffi';
import { nvmlCodeText, nvmlFunctionMissing, nvmlSuccess } from './nvml-abi.js';

export type NvmlHandle = bigint;
type Argument = NvmlHandle | number | string | Buffer;
type NvmlFunction = (...args: readonly Argument[]) => number;

/** A call that NVML answered with anything but success. */
export class NvmlError extends Error {
  override readonly name = 'NvmlError';
  constructor(readonly call: string, readonly code: number) {
    super(`${call}: ${nvmlCodeText(code)} (${code})`);
  }
}

export class NvmlFunctions {
  readonly path: string;
  readonly #library: ReturnType<typeof koffi.load>;
  readonly #bound = new Map<string, NvmlFunction | null>();

  /** Loads the first of `paths` that loads. Throws an Error that names each path and what it said. */
  constructor(paths: readonly string[]) {
    const refusals: string[] = [];
    for (const path of paths) {
      try {
        this.#library = koffi.load(path);
        this.path = path;
        return;
      } catch (error) {
        refusals.push(`${path}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    throw new Error(refusals.length === 0 ? 'no NVML on this platform' : refusals.join('; '));
  }

  /** NVML's return code; "function not found" when this library has no such function. */
  call(name: string, ...args: readonly Argument[]): number {
    let native = this.#bound.get(name);
    if (native === undefined) {
      native = this.#bind(name, args);
      this.#bound.set(name, native);
    }
    return native === null ? nvmlFunctionMissing : native(...args);
  }

  /** Throws NvmlError for every answer but success. */
  must(name: string, ...args: readonly Argument[]): void {
    const code = this.call(name, ...args);
    if (code !== nvmlSuccess) throw new NvmlError(name, code);
  }

  /** Every NVML function returns an int and takes handles, unsigned ints, texts and memory to fill: the first call shows which. */
  #bind(name: string, args: readonly Argument[]): NvmlFunction | null {
    const types = args.map((arg) => {
      if (typeof arg === 'bigint') return 'uintptr_t';
      if (typeof arg === 'number') return 'unsigned int';
      return typeof arg === 'string' ? 'str' : 'void *';
    });
    try {
      return this.#library.func(name, 'int', types) as NvmlFunction;
    } catch (error) {
      // koffi throws when the symbol is missing: an older driver.
      if (error instanceof Error) return null;
      throw error;
    }
  }
}
