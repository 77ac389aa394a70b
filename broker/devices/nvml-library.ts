/** NVML opened by FFI. Only the helper process imports this: a call may hang for ever, and then takes its process with it. */
import {
  decodeMemoryV1, decodeMemoryV2, decodeProcesses, decodeText, isUnsupported, makesHandleStale, memoryV1Bytes, memoryV2Bytes,
  memoryV2Version, mergeProcesses, needsReopen, nvmlInsufficientSize, nvmlSuccess, processRoomBytes, processStrideBytes, saysLost,
  type MemoryFigures, type ProcessFigure,
} from './nvml-abi.js';
import { NvmlError, NvmlFunctions, type NvmlHandle } from './nvml-functions.js';
import type { HelperCard, HelperReading } from './nvml-messages.js';
import { normaliseDevice } from './uuid.js';

const processLists = ['nvmlDeviceGetComputeRunningProcesses', 'nvmlDeviceGetGraphicsRunningProcesses', 'nvmlDeviceGetMPSComputeRunningProcesses'];

export class NvmlLibrary {
  readonly driver: string;
  readonly #nvml: NvmlFunctions;
  readonly #handles = new Map<string, NvmlHandle>();

  /** Loads the first of `paths` that loads, and initialises it. Throws an Error that says why that was not possible. */
  constructor(paths: readonly string[]) {
    this.#nvml = new NvmlFunctions(paths);
    this.#nvml.must('nvmlInit_v2');
    const driver = Buffer.alloc(96);
    this.driver = this.#nvml.call('nvmlSystemGetDriverVersion', driver, driver.length) === nvmlSuccess ? decodeText(driver) : 'unknown';
  }

  get path(): string {
    return this.#nvml.path;
  }

  /** Every card that CUDA could use: a card in MIG mode is replaced by its slices. */
  cards(): readonly HelperCard[] {
    this.#handles.clear();
    const count = Buffer.alloc(4);
    this.#nvml.must('nvmlDeviceGetCount_v2', count);
    const cards: HelperCard[] = [];
    for (let index = 0; index < count.readUInt32LE(); index++) {
      const handle = this.#handleBy('nvmlDeviceGetHandleByIndex_v2', index);
      // One card that has fallen off the bus must not hide the others.
      if (handle === null) continue;
      const slices = this.#slices(handle);
      for (const each of slices ?? [handle]) {
        const card = this.#describe(each);
        if (card !== null) cards.push({ ...card, index: slices === null ? index : null });
      }
    }
    return cards;
  }

  /** One reading of one card; never throws for what NVML answers. */
  read(device: string, nowUs: () => number): HelperReading {
    const takenAtUs = nowUs();
    try {
      const handle = this.#handleOf(device);
      if (this.#isSliced(handle)) return { kind: 'missing', takenAtUs, reading: 'unsupported', reason: 'it is in MIG mode now: its slices are cards of their own', lost: true };
      const { figures, counting } = this.#memory(handle);
      const { usedBytes, totalBytes } = figures;
      if (usedBytes === null || totalBytes === null) {
        return { kind: 'missing', takenAtUs, reading: 'unsupported', reason: 'NVML gives no memory figure for this card' };
      }
      if (totalBytes === 0 || usedBytes > totalBytes) {
        return { kind: 'missing', takenAtUs, reading: 'unknown', reason: `NVML says ${usedBytes} of ${totalBytes} bytes, which cannot be` };
      }
      return { kind: 'read', takenAtUs, usedBytes, totalBytes, counting, processes: this.#processes(handle) };
    } catch (error) {
      if (!(error instanceof NvmlError)) throw error;
      this.#recover(device, error.code);
      return { kind: 'missing', takenAtUs, reading: isUnsupported(error.code) ? 'unsupported' : 'failed', reason: error.message, ...(saysLost(error.code) ? { lost: true } : {}) };
    }
  }

  close(): void {
    this.#nvml.call('nvmlShutdown');
  }

  /** Forgets what a failure has made stale, so that the next reading starts afresh (a driver reload, a card that came back). */
  #recover(device: string, code: number): void {
    if (makesHandleStale(code)) this.#handles.delete(device);
    if (!needsReopen(code)) return;
    this.#handles.clear();
    this.#nvml.call('nvmlShutdown');
    // Whether it worked is what the next reading says.
    this.#nvml.call('nvmlInit_v2');
  }

  #describe(handle: NvmlHandle): Omit<HelperCard, 'index'> | null {
    const uuid = Buffer.alloc(96);
    if (this.#nvml.call('nvmlDeviceGetUUID', handle, uuid, uuid.length) !== nvmlSuccess) return null;
    const spelling = decodeText(uuid);
    const device = normaliseDevice(spelling) ?? spelling;
    this.#handles.set(device, handle);
    const name = Buffer.alloc(96);
    const named = this.#nvml.call('nvmlDeviceGetName', handle, name, name.length) === nvmlSuccess;
    return {
      device,
      name: named ? decodeText(name) : device,
      totalBytes: this.#totalOf(handle),
      // Not nvmlDeviceGetDisplayMode: it is "enabled" on an H200 in a rack (measured, driver 580).
      display: this.#flag('nvmlDeviceGetDisplayActive', handle),
      processes: this.#processes(handle) !== null,
    };
  }

  #totalOf(handle: NvmlHandle): number | null {
    try {
      return this.#memory(handle).figures.totalBytes;
    } catch (error) {
      if (error instanceof NvmlError) return null;
      throw error;
    }
  }

  /** Handles of a card's MIG slices; null when it is not in MIG mode, empty when it is and has none. */
  #slices(handle: NvmlHandle): readonly NvmlHandle[] | null {
    if (!this.#isSliced(handle)) return null;
    const count = Buffer.alloc(4);
    if (this.#nvml.call('nvmlDeviceGetMaxMigDeviceCount', handle, count) !== nvmlSuccess) return [];
    const slices: NvmlHandle[] = [];
    for (let index = 0; index < count.readUInt32LE(); index++) {
      const slice = this.#handleBy('nvmlDeviceGetMigDeviceHandleByIndex', handle, index);
      if (slice !== null) slices.push(slice);
    }
    return slices;
  }

  /** In MIG mode now; of a slice itself the driver says that there is no such thing. */
  #isSliced(handle: NvmlHandle): boolean {
    const current = Buffer.alloc(4);
    const pending = Buffer.alloc(4);
    return this.#nvml.call('nvmlDeviceGetMigMode', handle, current, pending) === nvmlSuccess && current.readUInt32LE() === 1;
  }

  #memory(handle: NvmlHandle): { readonly figures: MemoryFigures; readonly counting: 'v1' | 'v2' } {
    const v2 = Buffer.alloc(memoryV2Bytes);
    v2.writeUInt32LE(memoryV2Version);
    const code = this.#nvml.call('nvmlDeviceGetMemoryInfo_v2', handle, v2);
    if (code === nvmlSuccess) return { figures: decodeMemoryV2(v2), counting: 'v2' };
    // Drivers before 510 have no v2, and some refuse it on MIG slices.
    if (!isUnsupported(code)) throw new NvmlError('nvmlDeviceGetMemoryInfo_v2', code);
    const v1 = Buffer.alloc(memoryV1Bytes);
    this.#nvml.must('nvmlDeviceGetMemoryInfo', handle, v1);
    return { figures: decodeMemoryV1(v1), counting: 'v1' };
  }

  /** Null when the driver does not give memory by process: absent from the list would read as zero bytes held. */
  #processes(handle: NvmlHandle): readonly { readonly pid: number; readonly usedBytes: number }[] | null {
    const lists: (readonly ProcessFigure[])[] = [];
    for (const [index, name] of processLists.entries()) {
      const list = this.#processList(`${name}_v3`, handle) ?? this.#processList(`${name}_v2`, handle);
      if (list !== null) lists.push(list);
      else if (index === 0) return null;
    }
    return mergeProcesses(lists);
  }

  #processList(name: string, handle: NvmlHandle): readonly ProcessFigure[] | null {
    let room = 64;
    // Processes may come while we count them: three tries, each with more room than was just asked for.
    for (let attempt = 0; attempt < 3; attempt++) {
      const count = Buffer.alloc(4);
      count.writeUInt32LE(room);
      const infos = Buffer.alloc(room * processRoomBytes);
      const code = this.#nvml.call(name, handle, count, infos);
      if (code === nvmlSuccess) return decodeProcesses(infos, Math.min(count.readUInt32LE(), room), processStrideBytes(this.driver));
      if (code !== nvmlInsufficientSize) return null;
      room = count.readUInt32LE() * 2 + 64;
    }
    return null;
  }

  #flag(name: string, handle: NvmlHandle): boolean {
    const value = Buffer.alloc(4);
    return this.#nvml.call(name, handle, value) === nvmlSuccess && value.readUInt32LE() === 1;
  }

  #handleOf(device: string): NvmlHandle {
    const known = this.#handles.get(device);
    if (known !== undefined) return known;
    const handle = Buffer.alloc(8);
    this.#nvml.must('nvmlDeviceGetHandleByUUID', device, handle);
    this.#handles.set(device, handle.readBigUInt64LE());
    return handle.readBigUInt64LE();
  }

  #handleBy(name: string, ...args: readonly (NvmlHandle | number)[]): NvmlHandle | null {
    const handle = Buffer.alloc(8);
    return this.#nvml.call(name, ...args, handle) === nvmlSuccess ? handle.readBigUInt64LE() : null;
  }
}
