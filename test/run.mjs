// Builds, runs the tests with tap, and ends with the plain line "N passed, N failed".
// Usage: npm test [-- FILE-OR-FOLDER ...] [--tap-option ...]     (a file may be a source or its compiled form)
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { build, fromPackage, listFiles, root } from './tools/build.mjs';
import { failureText, fileLines } from './tools/report.mjs';
import { readResults } from './tools/results.mjs';

const options = process.argv.slice(2).filter((argument) => argument.startsWith('-'));
const wanted = process.argv.slice(2).filter((argument) => !argument.startsWith('-')).map(toSource);
const problems = [];

const built = build();
// The compiler emits even so, and the tests that can run say more than the first type error does.
if (!built.ok) problems.push(`the build failed\n${built.output.trimEnd()}`);

const files = chosenFiles();
const { totals, exit } = await runTap(files);
for (const failure of totals.failures) console.log(`\n${failureText(failure)}`);
if (exit !== 0 && totals.failed === 0) problems.push(`tap ended with ${exit} though no test says that it failed`);
for (const problem of problems) console.log(`\nFAIL ${problem}`);

const failed = totals.failed + problems.length;
if (totals.skipped > 0) console.log(`\n${totals.skipped} skipped`);
console.log(`\n${totals.passed} passed, ${failed} failed`);
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

/** Runs tap over the files; resolves to what was counted and tap's exit code (or the signal that ended it). */
async function runTap(paths) {
  const unheard = new Set(paths);
  const { parser, totals } = readResults((file) => {
    unheard.delete(file.name);
    console.log(fileLines(file));
  });
  if (paths.length === 0) return { totals, exit: 0 };
  const preload = new URL('./tools/plain-children.mjs', import.meta.url).href;
  const fixed = ['--reporter=tap', `--node-arg=--import=${preload}`];
  const tap = spawn(process.execPath, [fromPackage('tap', 'dist/esm/run.mjs'), ...fixed, ...options, ...paths], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = new Promise((done) => tap.on('close', (code, signal) => done(code ?? signal)));
  const parsed = new Promise((done) => parser.on('complete', done));
  tap.stdout.pipe(parser);
  const [exit] = await Promise.all([exited, parsed]);
  // When tap itself loses patience it says so without the file's name.
  for (const path of unheard) problems.push(`${path} has no result: it did not end in time, or was never started`);
  return { totals, exit };
}
