#!/usr/bin/env node
// The command as npm links it: a file of the repository, executable, that is there before the first build and after every
// other. npm gives a bin its link and its mode once, when it installs; what the build writes comes too late for both.
import { existsSync } from 'node:fs';

const command = new URL('../../dist/bin/leasehold.js', import.meta.url);
if (existsSync(command)) {
  try {
    await import(command.href);
  } catch (error) {
    if (error.code !== 'EMFILE' && error.code !== 'ENFILE') throw error;
    process.stderr.write(`error: The limit of ${error.code === 'EMFILE' ? 'a process' : 'the system'} on open files is reached (${error.code}).\n  help: Raise it: \`ulimit -n 65536\` before the start.\n`);
    process.exitCode = 1;
  }
} else {
  process.stderr.write('error: leasehold is not built here.\n  help: npm run build\n');
  process.exitCode = 1;
}
