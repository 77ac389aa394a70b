/** NVML's C interface as bytes: return codes, versions and the layout of what it fills in. Pure, so that it is tested without a library. */

export const nvmlSuccess = 0;
export const nvmlInsufficientSize = 7;
export const nvmlFunctionMissing = 13;

/** Codes that say "this driver does not give that here": another reading than a failure. */
const unsupportedCodes = new Set([3, 13]);
/** Codes after which the library must be opened anew: uninitialised, driver gone, driver and library of two versions. */
const reopenCodes = new Set([1, 9, 18]);
/** Codes after which a card's handle may be stale: bad argument, not found, GPU lost, reset required. */
const staleHandleCodes = new Set([2, 6, 15, 16]);

/** Codes by which a driver that works says that a card is gone: not found, GPU lost. */
const lostCodes = new Set([6, 15]);

export const isUnsupported = (code: number): boolean => unsupportedCodes.has(code);
export const needsReopen = (code: number): boolean => reopenCodes.has(code);
export const saysLost = (code: number): boolean => lostCodes.has(code);
export const makesHandleStale = (code: number): boolean => staleHandleCodes.has(code);

/** NVML_VALUE_NOT_AVAILABLE. */
const notAvailable = 0xffff_ffff_ffff_ffffn;

/** nvmlMemory_t: total, free, used. */
export const memoryV1Bytes = 24;
/** nvmlMemory_v2_t: version (and padding), total, reserved, free, used. */
export const memoryV2Bytes = 40;
/** NVML_STRUCT_VERSION(Memory, 2). */
export const memoryV2Version = memoryV2Bytes | (2 << 24);

export interface MemoryFigures {
  /** Null: the driver fills in "not available". */
  readonly totalBytes: number | null;
  readonly usedBytes: number | null;
}

export function decodeMemoryV1(buffer: Buffer): MemoryFigures {
  return { totalBytes: decodeBytes(buffer, 0), usedBytes: decodeBytes(buffer, 16) };
}

export function decodeMemoryV2(buffer: Buffer): MemoryFigures {
  return { totalBytes: decodeBytes(buffer, 8), usedBytes: decodeBytes(buffer, 32) };
}

/** An unsigned 64-bit count of bytes; null for "not available" and for what no safe integer holds. */
export function decodeBytes(buffer: Buffer, offset: number): number | null {
  const value = buffer.readBigUInt64LE(offset);
  return value === notAvailable || value > BigInt(Number.MAX_SAFE_INTEGER) ? null : Number(value);
}

export interface ProcessFigure {
  readonly pid: number;
  /** Null: NVML names the process and not what it holds (WDDM, no permission). */
  readonly usedBytes: number | null;
}

/** Room for one process in the longest layout that a driver has used, so that none can write past the end. */
export const processRoomBytes = 32;

/**
 * Bytes from one process to the next: pid, used (at 8), two instance ids. Drivers 535.43 to 535.86 added a field to
 * the end under the same function name, and 535.98 took it back.
 */
export function processStrideBytes(driver: string): number {
  const [branch, minor] = driver.split('.').map(Number);
  return branch === 535 && minor !== undefined && minor >= 43 && minor <= 86 ? 32 : 24;
}

export function decodeProcesses(buffer: Buffer, count: number, strideBytes: number): readonly ProcessFigure[] {
  return Array.from({ length: count }, (_, index) => ({
    pid: buffer.readUInt32LE(index * strideBytes),
    usedBytes: decodeBytes(buffer, index * strideBytes + 8),
  }));
}

/**
 * By pid, from NVML's lists of compute, graphics and MPS processes. A process in two lists stands in each with its
 * whole use, so the larger figure counts and not the sum. Null when any figure is missing: a list with holes would
 * read as zero.
 */
export function mergeProcesses(lists: readonly (readonly ProcessFigure[])[]): readonly { readonly pid: number; readonly usedBytes: number }[] | null {
  const byPid = new Map<number, number>();
  for (const { pid, usedBytes } of lists.flat()) {
    if (usedBytes === null) return null;
    byPid.set(pid, Math.max(byPid.get(pid) ?? 0, usedBytes));
  }
  return [...byPid].map(([pid, usedBytes]) => ({ pid, usedBytes }));
}

/** Text that NVML wrote into a buffer, up to its NUL. */
export function decodeText(buffer: Buffer): string {
  const end = buffer.indexOf(0);
  return buffer.toString('utf8', 0, end === -1 ? buffer.length : end);
}

const codeTexts: Readonly<Record<number, string>> = {
  1: 'not initialised', 2: 'invalid argument', 3: 'not supported', 4: 'no permission', 6: 'not found', 7: 'insufficient size',
  9: 'driver not loaded', 10: 'timeout', 12: 'library not found', 13: 'function not found', 15: 'GPU is lost', 16: 'reset required',
  17: 'blocked by the operating system', 18: 'driver and library versions differ', 20: 'out of memory', 21: 'no data', 999: 'unknown error',
};

export function nvmlCodeText(code: number): string {
  return codeTexts[code] ?? 'error';
}
