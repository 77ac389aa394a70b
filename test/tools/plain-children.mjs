// Preloaded into every test process (run.mjs), after tap's own preload.
// tap adds a loader and its variables to each process that a test starts, whatever environment the test asked for. Here the
// processes are what is under test: they must start as fast, and with just the environment, as they would without tap.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
// The very instance that tap registered with.
const fromTap = createRequire(require.resolve('@tapjs/processinfo'));
fromTap('process-on-spawn').removeAllListeners();

delete process.env.NODE_OPTIONS;
for (const name of Object.keys(process.env)) if (name.startsWith('_TAPJS_PROCESSINFO_')) delete process.env[name];
// What fork() hands on.
process.execArgv = process.execArgv.filter((argument) => !argument.startsWith('--import='));
