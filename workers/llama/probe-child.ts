/**
 * Tries a backend where it may die: some driver and build combinations load, fill the card and then abort the process at
 * the first compute. Started by probe.ts with an IPC channel; says `ran` after one token, or why it did not come to that.
 */
import { importLibrary } from './library.js';
import { runOneToken } from './probe-model.js';
import { sayAloud } from './say-aloud.js';
import { visibilityFault } from './visible-devices.js';

export type ProbeBackend = 'cuda' | 'vulkan' | 'metal';

export type FromProbe =
  | { readonly kind: 'ran' }
  | { readonly kind: 'failed'; readonly reason: string };

const answer = (message: FromProbe): void => void process.send?.(message, () => process.exit());

async function main(backend: ProbeBackend, cardName: string): Promise<void> {
  const library = await importLibrary();
  const llama = await library.getLlama({
    gpu: backend, build: 'never', skipDownload: true, progressLogs: false, maxThreads: 1, ramPadding: 0, vramPadding: 0,
    logLevel: library.LlamaLogLevel.error,
    // llama.cpp says why in its log alone; whoever started us reads our output to its end.
    logger: (_, line) => void process.stderr.write(`${line.trim()}\n`),
  });
  sayAloud(llama);
  const fault = visibilityFault(await llama.getGpuDeviceNames(), cardName);
  if (fault !== null) {
    answer({ kind: 'failed', reason: fault });
    return;
  }
  await runOneToken(llama);
  answer({ kind: 'ran' });
}

function fail(error: unknown): void {
  answer({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
}

process.on('disconnect', () => process.exit());
await main(process.argv[2] as ProbeBackend, process.argv[3] ?? '').catch(fail);
