/** The machine's memory as a card is read: total, used, and by process. */
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { monotonicUs } from '../../../protocol/node/clock.js';
import type { CardDescription, Reading } from '../types.js';
import { cgroupLevels } from './cgroup-levels.js';
import { bindingLevels, levelMemory } from './cgroup-memory.js';
import { Unreadable, textOf } from './files.js';
import { parseMeminfo, type MachineMemory } from './meminfo.js';
import { processMemoryBytes } from './process-memory.js';

/** The name of the machine's memory in the ledger. */
export const hostDevice = 'HOST-0';

export interface HostMemoryOptions {
  readonly platform?: NodeJS.Platform;
  /** Before every path; tests hand in a folder with files of other machines. */
  readonly root?: string;
  readonly nowUs?: () => number;
}

export class HostMemory {
  readonly #platform: NodeJS.Platform;
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

  #memory(): MachineMemory {
    const machine = this.machine();
    if (this.#platform !== 'linux') return machine;
    const mountinfo = textOf(join(this.#root, 'proc/self/mountinfo')) ?? '';
    const levels = cgroupLevels(mountinfo, textOf(join(this.#root, 'proc/self/cgroup')) ?? '').map((level) => ({ ...level, folder: join(this.#root, level.folder) }));
    const limits = bindingLevels(levels).map(levelMemory).filter((limit) => limit !== null);
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
