#!/usr/bin/env node
/** The `leasehold` command. */
import type { OrchestratorOptions } from '../orchestrator/options.js';
import { exitCodes } from './exit-codes.js';
import { processIo } from './io.js';
import { runProgram } from './program.js';

const reader = { gone: false };

/** A reader that has seen enough (`| head`), or a terminal that was closed: whatever runs is stopped and cleaned up, and that is no failure. */
function onOutputError(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE' && error.code !== 'EIO') throw error;
  if (reader.gone) return;
  reader.gone = true;
  process.emit('SIGHUP', 'SIGHUP');
}

process.stdout.on('error', onOutputError);
process.stderr.on('error', onOutputError);

const code = await runProgram(process.argv.slice(2), {
  io: processIo(),
  createOrchestrator: async (options: OrchestratorOptions) => (await import('../orchestrator/index.js')).createOrchestrator(options),
});
process.exitCode = reader.gone ? exitCodes.done : code;
