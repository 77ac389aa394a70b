/** A host application as a process of its own, driven by lines. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import type { OrchestratorOptions } from '../../src/orchestrator/index.js';
import { until } from './support.js';

const program = fileURLToPath(new URL('./host-app.js', import.meta.url));

export type Said = { readonly event: string } & Readonly<Record<string, unknown>>;

export interface Host {
  readonly child: ChildProcess;
  readonly pid: number;
  /** Exit code, or the signal that ended it. */
  readonly exited: Promise<number | string>;
  readonly said: readonly Said[];
  tell(...words: readonly string[]): void;
  /** The next thing of that name that it says, or has said and nobody has heard; rejects when it fails instead. */
  hear(event: string): Promise<Said>;
}

const failures: ReadonlySet<string> = new Set(['failed', 'refused']);

/** Starts it; whatever becomes of it, it does not outlive the test. */
export function startHost(t: Pick<Test, 'teardown'>, options: OrchestratorOptions): Host {
  const child = spawn(process.execPath, [program, JSON.stringify(options)], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = new Promise<number | string>((resolve) => {
    child.once('exit', (code, signal) => { resolve(signal ?? code ?? 'unknown'); });
  });
  const said: Said[] = [];
  const heard = new Set<Said>();
  createInterface({ input: child.stdout }).on('line', (line) => { said.push(JSON.parse(line) as Said); });
  // It may be dead by the time it is told something.
  child.stdin.on('error', () => undefined);
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await exited;
  });
  return {
    child, exited, said, pid: child.pid ?? 0,
    tell: (...words) => { child.stdin.write(`${words.join(' ')}\n`); },
    hear: async (event) => {
      const one = await until(`the host to say ${event}`, () => said.find((each) => !heard.has(each) && (each.event === event || failures.has(each.event))));
      heard.add(one);
      if (one.event !== event) throw new Error(`the host did not say ${event} but ${JSON.stringify(one)}`);
      return one;
    },
  };
}
