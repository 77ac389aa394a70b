/** llama.cpp itself, opened once a process, with nothing left to chance or to the bindings' own margins. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Library } from './library.js';
import type { NativeLog } from './native-log.js';
import type { ProbeBackend } from './probe-child.js';

export type Llama = Awaited<ReturnType<Library['getLlama']>>;

export async function openLlama(base: { readonly library: Library; readonly threads: number; readonly log: NativeLog }, gpu: ProbeBackend | false): Promise<Llama> {
  const { library, threads, log } = base;
  try {
    return await library.getLlama({
      gpu,
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      maxThreads: threads,
      // The broker keeps the reserves; a second margin here would refuse what was granted.
      ramPadding: 0,
      vramPadding: 0,
      logLevel: library.LlamaLogLevel.warn,
      logger: log.take,
    });
  } catch (error) {
    throw LeaseholdError.from(error, 'engine_missing', { engine: 'llama' });
  }
}
