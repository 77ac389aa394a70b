#!/usr/bin/env node
/** The `leasehold` command. */
import type { OrchestratorOptions } from '../orchestrator/options.js';
import { exitCodes } from './exit-codes.js';
import { processIo } from './io.js';
import { runProgram } from './program.js';

/** Why what is said reaches nobody. */
const unheard = { gone: false, unwritten: false };

/**
 * A reader that has seen enough (`| head`), or a terminal that was closed:
 * whatever runs is stopped and cleaned up, and that is no failure. Output that
 * could not be written (a full disk) is one.
 */
function onOutputError(error: NodeJS.ErrnoException, to: string): void {
  if (unheard.gone || unheard.unwritten) return;
  unheard.gone = error.code === 'EPIPE' || error.code === 'EIO';
  unheard.unwritten = !unheard.gone;
  if (unheard.unwritten) process.stderr.write(`error: ${to} cannot be written: ${error.message}.\n`);
  process.emit('SIGHUP', 'SIGHUP');
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => { onOutputError(error, 'standard output'); });
process.stderr.on('error', (error: NodeJS.ErrnoException) => { onOutputError(error, 'standard error'); });

const code = await runProgram(process.argv.slice(2), {
  io: processIo(),
  createOrchestrator: async (options: OrchestratorOptions) => (await import('../orchestrator/index.js')).createOrchestrator(options),
});
process.exitCode = unheard.gone ? exitCodes.done : code;
// What is written last is found unwritten only after the command has ended.
process.once('exit', () => { if (unheard.unwritten) process.exitCode = exitCodes.failed; });
