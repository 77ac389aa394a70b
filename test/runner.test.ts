// What `npm test` makes of a test file: every way to fail is counted, once, under a name.
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

const tools = new URL('../../test/tools/', import.meta.url).href;

/** Runs files that say and do the given things: their counts by name, and the failures' texts. */
async function run(folder: string, sources: Readonly<Record<string, string>>): Promise<{ files: Record<string, number[]>; failures: string[] }> {
  mkdirSync(folder, { recursive: true });
  for (const [name, source] of Object.entries(sources)) writeFileSync(join(folder, `${name}.mjs`), source);
  const script = `
    import { runFiles } from ${JSON.stringify(`${tools}files.mjs`)};
    import { Results } from ${JSON.stringify(`${tools}results.mjs`)};
    import { failureText } from ${JSON.stringify(`${tools}report.mjs`)};
    const results = new Results();
    const files = {};
    await runFiles(process.argv.slice(1), results, ({ name, passed, failed, skipped }) => { files[name] = [passed, failed, skipped]; });
    console.log(JSON.stringify({ files, failures: results.failures.map((one) => failureText(one).split('\\n')[0]), total: [results.passed, results.failed, results.skipped] }));`;
  const paths = Object.keys(sources).map((name) => join(folder, `${name}.mjs`));
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script, ...paths]);
  const { files, failures, total } = JSON.parse(stdout) as { files: Record<string, number[]>; failures: string[]; total: number[] };
  const byName = Object.fromEntries(paths.map((path, at) => [Object.keys(sources)[at] ?? '', files[path] ?? []]));
  const summed = [0, 1, 2].map((column) => Object.values(byName).reduce((sum, counts) => sum + (counts[column] ?? 0), 0));
  t.strictSame(total, summed, 'what is said at the end is the sum of what is said of each file');
  const short = (text: string): string => paths.reduce((said, path, at) => said.replaceAll(path, Object.keys(sources)[at] ?? ''), text);
  return { files: byName, failures: failures.map(short).sort() };
}

const says = (...lines: readonly string[]): string => `console.log(${JSON.stringify(lines.join('\n'))});\n`;
const good = ['# Subtest: a', '    ok 1 - is so', '    1..1', 'ok 1 - a'];

t.test('each way for a file to fail is a failure with its reason, and files beside it are counted as they are', async (t) => {
  const { files, failures } = await run(t.testdir(), {
    fine: says(...good, '1..1'),
    plain: says('ok 1 - x', 'ok 2 - y', '1..2'),
    skipping: says(...good, 'ok 2 - b # SKIP needs a card', '1..2'),
    failing: `${says(...good, '# Subtest: b', '    not ok 1 - is not so', '    1..1', 'not ok 2 - b', '1..2')} process.exitCode = 1;`,
    empty: says('# Subtest: hollow', '    1..0 # no tests found', 'ok 1 - hollow # SKIP no tests found', '1..1'),
    silent: '',
    short: says(...good, '1..3'),
    code: `${says(...good, '1..1')} process.exitCode = 3;`,
    killed: `${says(...good, '# Subtest: b', '    ok 1 - begun')} setInterval(() => process.kill(process.pid, 'SIGKILL'), 200);`,
    bails: says('Bail out! enough'),
    throws: `${says(...good)} throw new Error('top');`,
  });
  t.strictSame(files, {
    fine: [1, 0, 0], plain: [1, 0, 0], skipping: [1, 0, 1], failing: [1, 1, 0], empty: [0, 1, 0], silent: [0, 1, 0], short: [1, 1, 0], code: [1, 1, 0],
    killed: [1, 1, 0], bails: [0, 1, 0], throws: [1, 1, 0],
  });
  t.match(failures, [
    'FAIL bails: it bailed out: enough',
    'FAIL code: it ended with exit code 3 though no test says that it failed',
    'FAIL empty > hollow: asserts nothing',
    'FAIL failing > b',
    'FAIL killed: it was ended by SIGKILL',
    'FAIL short: incorrect number of tests (exit code 0)',
    'FAIL silent: asserts nothing',
    /^FAIL throws: .*exit code 1/,
  ]);
});
