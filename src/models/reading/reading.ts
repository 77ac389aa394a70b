/**
 * Headers read in threads: the loop that asks stays free, a file that takes too long is given up with its thread, and
 * one that takes too much memory ends that thread alone.
 */
import { availableParallelism } from 'node:os';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { defaultLimits, durationText } from '../../../protocol/index.js';
import type { JsonObject } from '../formats/config-json.js';
import { unusableFile } from '../formats/fault.js';
import type { GgufHeader } from '../formats/gguf-header.js';
import type { SafetensorsHeader } from '../formats/safetensors-header.js';
import type { SafetensorsIndex } from '../formats/safetensors-index.js';
import type { ByteSource } from '../formats/source.js';
import { ThreadEnded, ThreadPool } from '../threads/thread-pool.js';
import type { Format, RangeRequest, ReadOutcome, ReadTask } from './task.js';

export interface ReadingOptions {
  /** For one file, the waiting for its ranges included, that for a thread not. */
  readonly timeoutMs?: number;
  /** Of one thread's heap. */
  readonly memoryBytesMax?: number;
  readonly threads?: number;
}

/** All reject with `model_invalid` when the file is at fault, with the source's own error when it is not, and with the signal's reason. */
export interface Reading {
  ggufHeader(source: ByteSource, signal?: AbortSignal): Promise<GgufHeader>;
  safetensorsHeader(source: ByteSource, signal?: AbortSignal): Promise<SafetensorsHeader>;
  safetensorsIndex(source: ByteSource, signal?: AbortSignal): Promise<SafetensorsIndex>;
  /** Of one file, so that a fault can be told by name; never needed where all is well. */
  safetensorsNames(source: ByteSource, signal?: AbortSignal): Promise<readonly string[]>;
  /** The tensors that an index puts into each of `wanted`. */
  indexNames(source: ByteSource, wanted: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, readonly string[]>>;
  configJson(source: ByteSource, signal?: AbortSignal): Promise<JsonObject>;
  /** Where a JSON file names code (`auto_map`); null: nowhere. */
  codeNames(source: ByteSource, signal?: AbortSignal): Promise<string | null>;
  /** Ends the threads; what is being read is rejected. */
  close(): Promise<void>;
}

export function createReading(options: ReadingOptions = {}): Reading {
  const pool = new Threads(options);
  const read = <T>(format: Format) => (source: ByteSource, signal?: AbortSignal): Promise<T> => pool.read({ format, source, signal }) as Promise<T>;
  return {
    ggufHeader: read('gguf'),
    safetensorsHeader: read('safetensors'),
    safetensorsIndex: read('index'),
    safetensorsNames: read('safetensors names'),
    indexNames: (source, wanted, signal) => pool.read({ format: 'index names', source, wanted, signal }) as Promise<ReadonlyMap<string, readonly string[]>>,
    configJson: read('config'),
    codeNames: read('code names'),
    close: () => pool.close(),
  };
}

interface Wish {
  readonly format: Format;
  readonly source: ByteSource;
  readonly wanted?: readonly string[];
  readonly signal: AbortSignal | undefined;
}

class Threads {
  readonly #timeoutMs: number;
  readonly #memoryBytes: number;
  readonly #pool: ThreadPool<ReadTask, ReadOutcome>;

  constructor({ timeoutMs, memoryBytesMax, threads }: ReadingOptions) {
    this.#timeoutMs = timeoutMs ?? defaultLimits.headerReadMs;
    this.#memoryBytes = memoryBytesMax ?? defaultLimits.headerMemoryBytesMax;
    this.#pool = new ThreadPool({
      script: new URL('./thread.js', import.meta.url), heapBytesMax: this.#memoryBytes,
      threadsMax: threads ?? Math.max(1, Math.min(4, availableParallelism() - 1)),
    });
  }

  async read({ format, source, wanted = [], signal }: Wish): Promise<unknown> {
    signal?.throwIfAborted();
    const { port1, port2 } = new MessageChannel();
    const ranges = new Ranges(source, port1);
    try {
      const task: ReadTask = { format, name: source.name, sizeBytes: source.sizeBytes, port: port2, wanted };
      const outcome = await this.#pool.run(task, { limitMs: this.#timeoutMs, transferList: [port2], ...signal === undefined ? {} : { signal } });
      if (ranges.error !== null) throw ranges.error;
      if ('unusable' in outcome) throw unusableFile(outcome.unusable.source, outcome.unusable.reason);
      return outcome.value;
    } catch (error) {
      if (ranges.error !== null) throw ranges.error;
      signal?.throwIfAborted();
      if (!(error instanceof ThreadEnded)) throw error;
      throw unusableFile(source.name, endings[error.how](this.#timeoutMs, this.#memoryBytes), error);
    } finally {
      ranges.close();
    }
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

const endings: Readonly<Record<ThreadEnded['how'], (timeoutMs: number, memoryBytes: number) => string>> = {
  time: (timeoutMs) => `its header could not be read within ${durationText(timeoutMs)}`,
  memory: (_, memoryBytes) => `its header cannot be read within ${String(memoryBytes)} bytes of memory`,
  itself: () => 'the thread that read its header ended',
};

/** Answers the thread's wishes from the source. The first failure is kept: it is the true reason, and only this side knows it whole. */
class Ranges {
  error: Error | null = null;

  constructor(private readonly source: ByteSource, private readonly port: MessagePort) {
    port.on('message', (request: RangeRequest) => void this.#answer(request));
  }

  close(): void {
    this.port.close();
  }

  async #answer({ id, offset, length }: RangeRequest): Promise<void> {
    try {
      const bytes = await this.source.read(offset, length);
      this.port.postMessage({ id, bytes });
    } catch (error) {
      this.error ??= error instanceof Error ? error : new Error(String(error));
      this.port.postMessage({ id, failed: true });
    }
  }
}
