/**
 * Tries a backend where it may die: some driver and build combinations load, fill the card and then abort the process at
 * the first compute. Started by probe.ts with an IPC channel; says `ran` after one token, then answers `read` with the
 * card's used bytes until it is told to end.
 */
import { importLibrary } from './library.js';
import { runOneToken } from './probe-model.js';

export type ProbeBackend = 'cuda' | 'vulkan' | 'metal';

export type FromProbe =
  | { readonly kind: 'ran'; readonly usedBytes: number }
  | { readonly kind: 'read'; readonly usedBytes: number }
  | { readonly kind: 'failed'; readonly reason: string };

/** llama.cpp says why in its log alone. */
const lines: string[] = [];
const send = (message: FromProbe): void => void process.send?.(message);

async function main(backend: ProbeBackend): Promise<void> {
  const library = await importLibrary();
  const llama = await library.getLlama({
    gpu: backend, build: 'never', skipDownload: true, progressLogs: false, maxThreads: 1, ramPadding: 0, vramPadding: 0,
    logLevel: library.LlamaLogLevel.error,
    logger: (_, line) => void lines.push(line.trim()),
  });
  await runOneToken(llama);
  const usedBytes = async (): Promise<number> => (await llama.getVramState()).used;
  process.on('message', (message) => {
    if (message !== 'read') return;
    void usedBytes().then((used) => send({ kind: 'read', usedBytes: used }), fail);
  });
  send({ kind: 'ran', usedBytes: await usedBytes() });
}

function fail(error: unknown): void {
  process.exitCode = 1;
  process.send?.({ kind: 'failed', reason: [error instanceof Error ? error.message : String(error), ...lines.slice(-3)].join(': ') } satisfies FromProbe, () => process.disconnect());
}

process.on('disconnect', () => process.exit());
await main(process.argv[2] as ProbeBackend).catch(fail);
