/**
 * The NVML helper: a process of its own, because a call into a driver may hang, and then nothing but the end of the
 * process ends it (D35). It reads questions from stdin and answers on stdout, a line each, and ends with its parent.
 */
import { createInterface } from 'node:readline';
import koffi from 'koffi';
import { monotonicUs } from '../../protocol/node/clock.js';
import { NvmlError } from './nvml-functions.js';
import { NvmlLibrary } from './nvml-library.js';
import type { HelperMessage, HelperRequest, HelperSetup } from './nvml-messages.js';

const setup = JSON.parse(process.argv[2] ?? '') as HelperSetup;
dieWithParent(setup.parentPid);
process.stdout.on('error', () => process.exit(0));
main();

function main(): void {
  let library: NvmlLibrary;
  try {
    library = new NvmlLibrary(setup.libraryPaths);
  } catch (error) {
    say({ say: 'unavailable', reason: error instanceof Error ? error.message : String(error) });
    return;
  }
  say({ say: 'ready', driver: library.driver, library: library.path });
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => say(answer(library, JSON.parse(line) as HelperRequest)));
  lines.on('close', () => library.close());
}

function answer(library: NvmlLibrary, request: HelperRequest): HelperMessage {
  if (request.ask === 'read') return { say: 'reading', id: request.id, reading: library.read(request.device, monotonicUs) };
  try {
    return { say: 'cards', id: request.id, cards: library.cards() };
  } catch (error) {
    if (!(error instanceof NvmlError)) throw error;
    return { say: 'failed', id: request.id, reason: error.message };
  }
}

function say(message: HelperMessage): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

/**
 * The end of stdin is not enough: a helper that hangs inside a call does not see it. On Linux the kernel is asked for
 * SIGKILL at the parent's end (prctl PR_SET_PDEATHSIG); if the parent went before that, nobody is left to serve.
 */
function dieWithParent(parentPid: number): void {
  if (process.platform !== 'linux') return;
  const prctl = koffi.load(null).func('int prctl(int, unsigned long, unsigned long, unsigned long, unsigned long)') as (...args: number[]) => number;
  prctl(1, 9, 0, 0, 0);
  if (process.ppid !== parentPid) process.exit(0);
}
