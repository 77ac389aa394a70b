/** What is wrong with a configuration, as commands tell it: all of it at once, each with its place, in text and as JSON. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { finish, work } from './command-world.js';
import { jsonLines } from './fake-io.js';

t.test('reports every fault of a configuration file', async (t) => {
  const path = join(work, 'faulty.yaml');
  writeFileSync(path, 'modls: {}\nreserve: lots\n');
  const { code, err } = await finish(['ps', '--config', path]);
  t.equal(code, 2);
  t.match(err, /^error: faulty\.yaml: line 1, column 1 \(modls\): unknown key.*\n {7}line 2, column 10 \(reserve\): must be a size.*\n {2}help: /);
  writeFileSync(path, `reserve: 1MiB
reserve: 2MiB
models:
  chat: { source: tiny-facts, ttl: 31d }
  b: { source: tiny-sums, aliases: [chat] }
  c: { source: 5 }
  d: { source: tiny-tales, engine: vllm }
limits: { workerMax: 3 }
workers: { mine: {} }
`);
  const wrong = [
    [null, '--limit: must be NAME=VALUE, not "leasesMax"'], [null, 'LEASEHOLD_RESERVE: must be a size like 256MiB, '],
    [2, 'line 2, column 1: the key "reserve" is there twice, first in line 1; keep one'], [4, 'line 4, column 36 (models.chat.ttl): must be at most 30d'],
    [5, 'line 5, column 36 (models.b.aliases): the name chat already means chat'], [6, 'line 6, column 16 (models.c.source): must be a path, '],
    [7, 'line 7, column 36 (models.d.engine): there is no engine vllm; known: llama, simulated, mine'],
    [8, 'line 8, column 11 (limits.workerMax): unknown key "workerMax"; did you mean workersMax?'], [9, 'line 9, column 18 (workers.mine): command is missing'],
  ] as const;
  const args = ['up', '--config', path, '--limit', 'leasesMax'];
  const all = await finish(args, {}, { env: { LEASEHOLD_RESERVE: 'lots' } });
  const lines = all.err.split('\n');
  t.equal(all.code, 2);
  for (const [index, [, text]] of wrong.entries()) t.ok(lines[index]?.includes(text), `${String(lines[index])} says: ${text}`);
  t.match(lines.slice(wrong.length), [/^ {2}help: /, ''], 'what the text, the schema, the settings and the library find wrong, from every source, and nothing else');
  const [told] = jsonLines((await finish([...args, '--json'], {}, { env: { LEASEHOLD_RESERVE: 'lots' } })).out) as unknown as readonly [{ readonly error: { readonly errors: readonly { readonly code: string; readonly message: string; readonly details: { readonly line?: string; readonly path: string } }[] } }];
  t.strictSame(told.error.errors.map(({ code, details: { path: from, line } }) => [code, from, line ?? null]), wrong.map(([line], index) => ['config_invalid', ['command line', 'environment'][index] ?? 'faulty.yaml', line === null ? null : String(line)]));
  for (const [index, [, text]] of wrong.entries()) t.ok(told.error.errors[index]?.message.includes(text));
  writeFileSync(path, 'reserve: [1\nlimits: {\n');
  const broken = await finish(args);
  t.match(broken.err, /^error: command line: --limit: must be NAME=VALUE[^]*\n {7}\S*faulty\.yaml: line \d, column \d+: [^]*help: /, 'a file that is no YAML does not hide what was typed wrong');
});
