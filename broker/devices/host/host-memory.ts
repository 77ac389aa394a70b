/** The machine's memory as a card is read: total, used, and by process. */
import { freemem, totalmem } from 'node:os';
import { join, relative } from 'node:path';
import { monotonicUs } from '../../../protocol/node/clock.js';
import type { CardDescription, Reading } from '../types.js';
import { cgroupLevels, type CgroupLevel } from './cgroup-levels.js';
import { bindingLevels, levelMemory, type LevelMemory } from './cgroup-memory.js';
import { Unreadable, textOf } from './files.js';
import { parseMeminfo, type MachineMemory } from './meminfo.js';
import { processMemoryBytes } from './process-memory.js';

/** The name of the machine's memory in the ledger. */
export const hostDevice = 'HOST-0';

export interface HostMemoryOptions {
  /** As `process.platform`. */
  readonly platform?: string;
  /** Before every path; tests hand in a folder with files of other machines. */
  readonly root?: string;
  readonly nowUs?: () => number;
}

export class HostMemory {
  readonly #platform: string;
  readonly #root: string;
  readonly #nowUs: () => number;

  constructor(options: HostMemoryOptions = {}) {
    this.#platform = options.platform ?? process.platform;
    this.#root = options.root ?? '/';
    this.#nowUs = options.nowUs ?? monotonicUs;
  }

  /** What may be leased of it, by the smallest of the machine and every cgroup this process is in; `processes` are those of `pids` that live. */
  readNow(pids: readonly number[]): Reading {
    const takenAtUs = this.#nowUs();
    try {
      const { totalBytes, availableBytes } = this.#memory();
      return { kind: 'read', device: hostDevice, takenAtUs, totalBytes, usedBytes: totalBytes - availableBytes, truth: 'system', processes: this.#processes(pids) };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      return { kind: 'missing', device: hostDevice, takenAtUs, reading: error.reading, reason: error.message };
    }
  }

  async read(_device: string, ours: () => readonly number[]): Promise<Reading> {
    return this.readNow(ours());
  }

  async close(): Promise<void> {
    // It holds nothing open.
  }

  /** The machine's memory as its ledger's card; its size is 0 while it cannot be read. */
  describe(): CardDescription {
    const reading = this.readNow([]);
    return {
      device: hostDevice, name: 'memory of the machine', kind: 'host', totalBytes: reading.kind === 'read' ? reading.totalBytes : 0,
      confirms: this.#platform === 'linux' ? 'process' : 'none', display: false, floorBytes: null, visibility: {},
    };
  }

  /** The machine's own, without any cgroup: what a card with unified memory has. */
  machine(): MachineMemory {
    if (this.#platform === 'linux') {
      const text = textOf(join(this.#root, 'proc/meminfo'));
      if (text === null) throw new Unreadable('unknown', 'there is no /proc/meminfo');
      return parseMeminfo(text);
    }
    // There "free" counts what can be had at once; on macOS it leaves out what can be reclaimed, and says nothing.
    if (this.#platform === 'win32') return { totalBytes: totalmem(), availableBytes: freemem() };
    throw new Unreadable('unsupported', `memory that is available cannot be read on ${this.#platform}`);
  }

  /** What the cgroups that bind this process allow, the nearest first. Throws `Unreadable` when one has a limit and its figures cannot be had. */
  limits(): readonly (CgroupLevel & LevelMemory)[] {
    if (this.#platform !== 'linux') return [];
    const mountinfo = textOf(join(this.#root, 'proc/self/mountinfo')) ?? '';
    const levels = cgroupLevels(mountinfo, textOf(join(this.#root, 'proc/self/cgroup')) ?? '', 'memory').map((level) => ({ ...level, folder: join(this.#root, level.folder) }));
    return bindingLevels(levels).flatMap((level) => {
      const memory = levelMemory(level);
      return memory === null ? [] : [{ version: level.version, folder: join('/', relative(this.#root, level.folder)), ...memory }];
    });
  }

  #memory(): MachineMemory {
    const machine = this.machine();
    const limits = this.limits();
    const totalBytes = Math.min(machine.totalBytes, ...limits.map(({ limitBytes }) => limitBytes));
    const availableBytes = Math.min(totalBytes, machine.availableBytes, ...limits.map((limit) => limit.availableBytes));
    if (totalBytes === 0) throw new Unreadable('unknown', 'a cgroup allows no memory at all');
    return { totalBytes, availableBytes };
  }

  #processes(pids: readonly number[]): readonly { readonly pid: number; readonly usedBytes: number }[] | null {
    if (this.#platform !== 'linux') return null;
    return pids.flatMap((pid) => {
      const usedBytes = processMemoryBytes(join(this.#root, 'proc'), pid);
      return usedBytes === null ? [] : [{ pid, usedBytes }];
    });
  }
}
