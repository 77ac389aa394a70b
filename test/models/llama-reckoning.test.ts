// Our estimate against llama.cpp's own, for files of published shapes with holes in place of weights.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { readGgufHeader } from '../../src/models/formats/gguf-header.js';
import { withFile } from '../../src/models/formats/source.js';
import { estimate } from '../../src/models/estimate/estimate.js';
import { factsOfGguf } from '../../src/models/estimate/facts.js';
import { askLlama } from '../../src/models/estimate/llama-reckoning.js';
import type { Reckoning } from '../../workers/llama/reckon.js';
import { publicShapes, writeShape } from '../fixtures/gguf-shapes.js';
import { asked } from '../fixtures/public-shapes.js';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-reckoning-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
const program = fileURLToPath(new URL('../../workers/llama/reckon.js', import.meta.url));
const sizes = [512, 4_096, 32_768, 131_072];

async function reckon(path: string): Promise<Reckoning> {
  const { stdout } = await promisify(execFile)(process.execPath, [program, 'cpu', path, '512', ...sizes.map(String)]);
  return JSON.parse(stdout.split('\n').find((line) => line.startsWith('{')) ?? '') as Reckoning;
}

t.test('our estimate is within 5 % of llama.cpp’s own', async (t) => {
  for (const [name, shape] of Object.entries(publicShapes)) {
    const path = await writeShape(join(folder, `${name}.gguf`), shape);
    const said = await reckon(path);
    if (!said.reckoned) {
      t.fail(`${name}: ${said.reason}`);
      continue;
    }
    const facts = factsOfGguf(name, [await withFile(path, readGgufHeader)]);
    const errors = said.contexts.map(({ tokens, hostBytes }) => {
      const { cards: [card] } = estimate({ facts, options: asked({ backend: 'llama', contextTokens: tokens, onCard: false }) });
      const context = (card?.kv.bytes ?? 0) + (card?.compute.bytes ?? 0);
      return { whole: (card?.total.bytes ?? 0) / (said.weights.hostBytes + hostBytes) - 1, context: context / hostBytes - 1, weights: (card?.weights.bytes ?? 0) / said.weights.hostBytes - 1 };
    });
    const percent = (value: number): string => `${(value * 100).toFixed(1)} %`;
    t.comment(`${name}: whole ${errors.map(({ whole }) => percent(whole)).join(', ')}; context alone ${errors.map(({ context }) => percent(context)).join(', ')}; weights ${percent(errors[0]?.weights ?? NaN)}`);
    t.ok(errors.every(({ whole }) => Math.abs(whole) <= 0.05), `${name}: whole`);
    t.ok(errors.every(({ context }) => Math.abs(context) <= 0.1), `${name}: each context by itself`);
    rmSync(path);
  }
});

t.test('llama.cpp is asked in a process that may die', async (t) => {
  const [name = '', shape] = Object.entries(publicShapes)[1] ?? [];
  if (shape === undefined) throw new Error('there is no shape');
  const path = await writeShape(join(folder, `${name}.gguf`), shape);
  const answer = await askLlama(path, 4_000, 512, 60_000);
  t.match(answer, { version: '3.21.1', weightBytes: 2_471_763_968, contextBytes: 405_276_672 }, 'for a context padded as it will be');
  writeFileSync(join(folder, 'broken.gguf'), 'GGUF');
  t.match(await askLlama(join(folder, 'broken.gguf'), 4_000, 512, 60_000), { missing: false, reason: /4 bytes/ });
  t.match(await askLlama(path, 4_000, 512, 1), { missing: false, reason: /did not answer within 1 ms/ });
  await t.rejects(askLlama(path, 4_000, 512, 60_000, AbortSignal.abort(new Error('not wanted'))), /not wanted/);
});
