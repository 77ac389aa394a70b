/** llama.cpp's own word on a model file, asked of a process that may die. No card is touched: it reckons for the CPU. */
import { durationText } from '../../../protocol/index.js';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export interface LlamaReckoning {
  /** Of the bindings: what was reckoned holds for it. */
  readonly version: string;
  readonly weightBytes: number;
  /** One context, cache and buffers. */
  readonly contextBytes: number;
}

export type LlamaAnswer = LlamaReckoning | { readonly missing: boolean; readonly reason: string };

const outputBytesMax = 1024 * 1024;
const program = fileURLToPath(new URL('../../../workers/llama/reckon.js', import.meta.url));

/** Never rejects, save for the signal's reason: a refusal, a death and an engine that is not installed are answers. */
export async function askLlama(path: string, contextTokens: number, batchTokens: number, timeoutMs: number, signal?: AbortSignal): Promise<LlamaAnswer> {
  signal?.throwIfAborted();
  // Another program's Node, as Electron's, is plain Node only when told.
  const env = process.versions['electron'] === undefined ? process.env : { ...process.env, ELECTRON_RUN_AS_NODE: '1' };
  const tokens = Math.ceil(contextTokens / 256) * 256;
  const args = [program, 'cpu', path, String(batchTokens), String(tokens)];
  const ended = await new Promise<{ readonly stdout: string; readonly error: (Error & { readonly killed?: boolean; readonly signal?: string | null }) | null }>((resolve) => {
    execFile(process.execPath, args, { env, timeout: timeoutMs, killSignal: 'SIGKILL', maxBuffer: outputBytesMax, ...(signal === undefined ? {} : { signal }) }, (error, stdout) => resolve({ stdout, error: error as never }));
  });
  signal?.throwIfAborted();
  const line = ended.stdout.split('\n').find((text) => text.startsWith('{"reckoned"'));
  if (line === undefined) return { missing: false, reason: ended.error?.killed === true ? `it did not answer within ${durationText(timeoutMs)}` : `it ended (${ended.error?.signal ?? ended.error?.message ?? 'without a word'})` };
  return answerOf(line);
}

function answerOf(line: string): LlamaAnswer {
  const said = JSON.parse(line) as { readonly reckoned: boolean; readonly version?: string; readonly weights?: Sizes; readonly contexts?: readonly Sizes[]; readonly missing?: boolean; readonly reason?: string };
  const context = said.contexts?.[0];
  if (!said.reckoned || said.weights === undefined || context === undefined) return { missing: said.missing === true, reason: said.reason ?? 'it gave no reason' };
  return { version: said.version ?? '?', weightBytes: said.weights.hostBytes, contextBytes: context.hostBytes };
}

interface Sizes {
  readonly hostBytes: number;
}
