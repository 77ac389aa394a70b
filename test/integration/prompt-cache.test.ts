/** What a worker of llama.cpp holds beside what is leased: nothing that grows with the prompts it has seen. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import type { ModelOptions, Orchestrator } from '../../src/orchestrator/index.js';
import { MiB, open, workerPid } from './support.js';

const names = ['tiny-tales', 'tiny-sums'] as const;
const contextTokens = 2_048;
const settled = 6;
const more = 18;

/** Memory of its own, files left out. */
function anonymousBytes(pid: number): number {
  return Number(/^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${String(pid)}/status`, 'utf8'))?.[1] ?? NaN) * 1_024;
}

/** Different from its first word on, so that none is another's beginning. */
const prompt = (number: number): string => `${String(number)} ${Array.from({ length: 420 }, (_, word) => `fox${String((number * 31 + word * 7) % 97)}`).join(' ')}`;

/** How much its worker grows over `more` calls, once it has had some. */
async function growth(orchestrator: Orchestrator, name: string, call: (number: number) => Promise<unknown>): Promise<number> {
  for (let number = 0; number < settled; number++) await call(number);
  const pid = await workerPid(orchestrator, name);
  const before = anonymousBytes(pid);
  for (let number = settled; number < settled + more; number++) await call(number);
  return anonymousBytes(pid) - before;
}

t.test('B187: three workers of llama.cpp, one of which embeds, keep no prompts of the past in memory that nobody leased', { timeout: 240_000, skip: process.platform !== 'linux' }, async (t) => {
  const models: Readonly<Record<string, ModelOptions>> = { 'tiny-tales': { source: 'tiny-tales', contextTokens }, 'tiny-sums': { source: 'tiny-sums', contextTokens }, embedder: { source: 'tiny-tales', contextTokens, embedding: true } };
  const orchestrator = await open(t, { devices: ['sim:256MiB'], models });
  const tokens = await orchestrator.countTokens('tiny-tales', prompt(0));
  // What llama.cpp's server would keep of each by its default, up to 8 GiB a process: the state of its context.
  const stateBytes = tokens * 1_280;
  t.ok(tokens > contextTokens / 2 && more * stateBytes > 20 * MiB, `${String(tokens)} tokens a prompt`);
  const grown = await Promise.all([
    ...names.map((name) => growth(orchestrator, name, (number) => orchestrator.generate(name, prompt(number), { maxTokens: 1 }).result())),
    growth(orchestrator, 'embedder', (number) => orchestrator.embed('embedder', [prompt(number)])),
  ]);
  t.comment(grown.map((bytes) => `${(bytes / MiB).toFixed(1)} MiB`).join(', '));
  // Heaps and buffers of the process breathe by some megabytes; what would be kept of the prompts comes on top of that.
  for (const [index, bytes] of grown.entries()) t.ok(bytes < more * stateBytes, `${[...names, 'embedder'][index] ?? ''}: ${(bytes / MiB).toFixed(1)} MiB more after ${String(more)} prompts, which are ${(more * stateBytes / MiB).toFixed(0)} MiB`);
  t.equal((await orchestrator.ledger()).workers.length, 3, 'each in a process of its own');
});
