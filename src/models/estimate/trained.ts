/** How long a context the model of a GGUF file here was trained on. */
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { createReading } from '../reading/reading.js';
import { UnknownField } from './model-shape.js';
import { localFiles } from './local-files.js';
import { readFacts } from './read-facts.js';

/** Null where the file does not say, or cannot be read: who loads it is told why then. */
export async function trainedTokensOf(path: string, limits: Limits, signal: AbortSignal): Promise<number | null> {
  const reading = createReading({ timeoutMs: limits.headerReadMs, memoryBytesMax: limits.headerMemoryBytesMax });
  try {
    const { shape } = await readFacts(await localFiles(path, { projector: null, backend: 'llama' }, reading), reading, signal);
    return shape instanceof UnknownField ? null : shape.trainedTokens;
  } catch (error) {
    if (error instanceof LeaseholdError && error.code === 'model_invalid') return null;
    throw error;
  } finally {
    await reading.close();
  }
}
