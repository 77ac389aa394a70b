/** llama.cpp's last words, where it may end the process. */
import type { Library } from './library.js';

type Llama = Awaited<ReturnType<Library['getLlama']>>;

/**
 * From now on llama.cpp's log is written to the process's output at once. The bindings hand each line to JavaScript by way of the
 * loop, and what llama.cpp says just before it aborts never gets there: of a compute that the driver refused nothing was
 * heard but "CUDA error" (measured).
 */
export function sayAloud(llama: Llama): void {
  const { _bindings: bindings } = llama as unknown as { readonly _bindings?: { setLogger?(logger?: undefined): void } };
  bindings?.setLogger?.();
}
