// Runs compiled test files, each in a process of its own, and hands on what they say. tap's own runner would preload its loader
// into each of them: half a second of a core per file, for coverage that nobody asked for.
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { root } from './build.mjs';

/** What a file may take until tap itself, inside it, says which test was running. */
const fileTimeoutMs = 300_000;

/** After that its process is killed. */
const killAfterMs = fileTimeoutMs + 30_000;

/** One more than there are cores: most files wait for processes and streams for most of their time. */
const jobs = availableParallelism() + 1;

/** Runs the files, some beside each other, and calls `onFile({ name, timeMs, … })`, with what `results` counted, as each one ends. */
export async function runFiles(paths, results, onFile) {
  const waiting = [...paths];
  await Promise.all(Array.from({ length: jobs }, async () => {
    for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) onFile(await runFile(path, results));
  }));
}

async function runFile(path, results) {
  const startedMs = performance.now();
  const file = results.file(path);
  const child = spawn(process.execPath, ['--enable-source-maps', path], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, TAP: '1', TAP_TIMEOUT: String(fileTimeoutMs / 1_000) },
  });
  let late = false;
  const patience = setTimeout(() => { late = true; child.kill('SIGKILL'); }, killAfterMs);
  const parsed = new Promise((done) => file.parser.on('complete', done));
  const exited = new Promise((done) => {
    child.on('error', (error) => done({ code: null, signal: null, error }));
    child.on('exit', (code, signal) => done({ code, signal }));
  });
  child.stdout.pipe(file.parser);
  const { code, signal, error } = await exited;
  clearTimeout(patience);
  await parsed;
  const timeMs = performance.now() - startedMs;
  const problem = late ? `it did not end within ${String(killAfterMs / 1_000)} s`
    : error !== undefined ? `it could not be started: ${error.message}`
    : signal !== null ? `it was ended by ${signal}` : undefined;
  return { ...file.end(problem, code), timeMs };
}
