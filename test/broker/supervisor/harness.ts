/** What the supervisor's tests share: a supervisor that writes down what it tells, waiting on conditions, and counting what is left. */
import { readdirSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createSupervisor, nodeCommand, type Obituary, type ProcessIdentity, type SpawnRequest, type Supervisor, type SupervisorOptions } from '../../../broker/supervisor/index.js';
import { LinuxProcessTable } from '../../../broker/supervisor/process-table-linux.js';

/** Long, for a machine with other things to do; a condition that holds ends the wait at once. */
export const patienceMs = 20_000;

export async function until<T>(what: string, probe: () => T | null | undefined | false, patience = patienceMs): Promise<T> {
  const endMs = performance.now() + patience;
  for (;;) {
    const found = probe();
    if (found !== null && found !== undefined && found !== false) return found;
    if (performance.now() > endMs) throw new Error(`waited ${patience} ms for ${what}`);
    await pause(5);
  }
}

/** The fixture of that name; fixtures are scripts and lie beside the sources. */
export function fixture(name: string): string {
  return fileURLToPath(new URL(`../../../../test/fixtures/processes/${name}.mjs`, import.meta.url));
}

export interface Told {
  readonly spawned: Map<string, ProcessIdentity>;
  readonly failed: Map<string, string>;
  readonly exited: Map<string, Obituary>;
  readonly unconfirmed: Map<string, string>;
  readonly lines: { readonly generation: string; readonly stream: string; readonly line: string }[];
  readonly notes: string[];
  /** onExited calls, to see that each comes once. */
  exits: number;
}

export interface Bench {
  readonly supervisor: Supervisor;
  readonly told: Told;
  readonly spawn: (generation: string, command: string, args?: readonly string[], env?: Readonly<Record<string, string>>) => void;
  /** Runs a fixture and resolves, once it says `ready`, to what follows that word. */
  readonly run: (generation: string, name: string, args?: readonly string[], env?: Readonly<Record<string, string>>) => Promise<readonly number[]>;
  readonly ended: (generation: string) => Promise<Obituary>;
}

export function bench(options: SupervisorOptions = {}): Bench {
  const told: Told = { spawned: new Map(), failed: new Map(), exited: new Map(), unconfirmed: new Map(), lines: [], notes: [], exits: 0 };
  const supervisor = createSupervisor({
    onSpawned: (generation, identity) => told.spawned.set(generation, identity),
    onSpawnFailed: (generation, reason) => told.failed.set(generation, reason),
    onExited: (generation, obituary) => {
      told.exits += 1;
      told.exited.set(generation, obituary);
    },
    onKillUnconfirmed: (generation, reason) => told.unconfirmed.set(generation, reason),
    onOutput: (generation, stream, line) => told.lines.push({ generation, stream, line }),
  }, { onNote: (_, note) => told.notes.push(note), ...options });
  const spawn: Bench['spawn'] = (generation, command, args = [], env = {}) => {
    const request: SpawnRequest = { generation, spawnId: generation, command, args, env };
    supervisor.spawn(request);
  };
  return {
    supervisor,
    told,
    spawn,
    run: async (generation, name, args = [], env = {}) => {
      const node = nodeCommand(fixture(name), args);
      spawn(generation, node.command, node.args, { ...node.env, ...env });
      const line = await until(`${name} to be ready`, () => told.lines.find((each) => each.generation === generation && each.line.startsWith('ready'))?.line);
      return line.split(' ').slice(1).filter((word) => word !== '').map(Number);
    },
    ended: (generation) => until(`the end of ${generation}`, () => told.exited.get(generation)),
  };
}

const table = new LinuxProcessTable();

/** True while a process of that pid lives; a zombie does not. */
export const lives = (pid: number): boolean => table.find(pid) !== null;

/** Living processes whose token begins with `mark`. */
export function carriers(mark: string): readonly number[] {
  return (table.list() ?? []).filter(({ token, ended }) => token !== null && token.startsWith(mark) && !ended).map(({ pid }) => pid);
}

export interface Holdings {
  readonly descriptors: number;
  readonly children: number;
  readonly resources: Readonly<Record<string, number>>;
}

/** What this process holds open: descriptors, children (zombies too), and what keeps its loop alive. */
export function holdings(): Holdings {
  const resources: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) resources[name] = (resources[name] ?? 0) + 1;
  delete resources['Immediate'];
  // The wait for the next look itself.
  delete resources['Timeout'];
  return {
    descriptors: readdirSync('/proc/self/fd').length,
    children: (table.list() ?? []).filter(({ parentPid }) => parentPid === process.pid).length,
    resources,
  };
}
