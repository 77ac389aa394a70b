// A command line in an empty world, with an orchestrator that is a fake.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { LeaseholdError } from '../../protocol/index.js';
import { runProgram } from '../../src/cli/program.js';
import type { OrchestratorOptions } from '../../src/orchestrator/options.js';
import { fakeIo, type FakeIo, type FakeIoOptions } from './fake-io.js';
import { FakeOrchestrator, type FakeSettings } from './fake-orchestrator.js';

/** Where commands are given, and a folder for a test's files. */
export const work = mkdtempSync(join(tmpdir(), 'leasehold-cli-'));
t.teardown(() => { rmSync(work, { recursive: true }); });

interface Run {
  readonly io: FakeIo;
  readonly orchestrators: FakeOrchestrator[];
  readonly ended: Promise<number>;
}

/** Starts a command line in an empty world. `refuse` is thrown instead of opening an orchestrator. */
export function start(args: readonly string[], settings: FakeSettings = {}, options: FakeIoOptions & { readonly refuse?: LeaseholdError; readonly onOpen?: () => void } = {}): Run {
  const io = fakeIo({ cwd: work, ...options });
  const orchestrators: FakeOrchestrator[] = [];
  const createOrchestrator = async (given: OrchestratorOptions) => {
    options.onOpen?.();
    if (options.refuse !== undefined) throw options.refuse;
    const fake = new FakeOrchestrator(given, settings);
    orchestrators.push(fake);
    return fake;
  };
  return { io, orchestrators, ended: runProgram(args, { io, createOrchestrator }) };
}

export async function finish(args: readonly string[], settings: FakeSettings = {}, options: Parameters<typeof start>[2] = {}) {
  const { io, orchestrators, ended } = start(args, settings, options);
  const code = await ended;
  return { code, io, out: io.stdout.text, err: io.stderr.text, fake: orchestrators[0], orchestrators };
}
