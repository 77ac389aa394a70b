// Builds, runs the tests, and ends with the plain line "N passed, N failed".
// Usage: npm test [-- FILE-OR-FOLDER ...]     (a file may be a source or its compiled form)
import { existsSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { build, listFiles, root } from './tools/build.mjs';
import { runFiles } from './tools/files.mjs';
import { failureText, fileLines } from './tools/report.mjs';
import { Results } from './tools/results.mjs';

const wanted = process.argv.slice(2).map(toSource);
const problems = [];

const built = build();
// The compiler emits even so, and the tests that can run say more than the first type error does.
if (!built.ok) problems.push(`the build failed\n${built.output.trimEnd()}`);

const results = new Results();
await runFiles(chosenFiles(), results, (file) => console.log(fileLines(file)));
for (const failure of results.failures) console.log(`\n${failureText(failure)}`);
for (const problem of problems) console.log(`\nFAIL ${problem}`);

const failed = results.failed + problems.length;
if (results.skipped > 0) console.log(`\n${results.skipped} skipped`);
console.log(`\n${results.passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;

/** The test files asked for, in compiled form. The sources are the list: a compiled leftover of a removed test is not run. */
function chosenFiles() {
  const all = listFiles('test', (path) => path.endsWith('.test.ts'));
  const chosen = wanted.length === 0 ? all : all.filter((path) => wanted.some((want) => path === want || path.startsWith(`${want}/`)));
  for (const want of wanted) {
    if (!all.some((path) => path === want || path.startsWith(`${want}/`))) problems.push(`${want}: no such test`);
  }
  if (all.length === 0) problems.push('there are no tests');
  const compiled = chosen.map((path) => `dist/${path.replace(/\.ts$/, '.js')}`);
  for (const path of compiled) if (!existsSync(join(root, path))) problems.push(`${path} was not built`);
  return compiled.filter((path) => existsSync(join(root, path)));
}

function toSource(argument) {
  const path = relative(root, resolve(argument)).split(sep).join('/');
  return path.replace(/^dist\//, '').replace(/\.js$/, '.ts');
}
