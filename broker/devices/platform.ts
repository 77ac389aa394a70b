/** Where each platform keeps the drivers' libraries and tools, and what it cannot tell. */
import { readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';

/** The inode of the first pid namespace, fixed in the kernel's ABI (PROC_PID_INIT_INO). */
const firstPidNamespace = 'pid:[4026531836]';

/** What of the platform the devices must know. Tests hand in their own. */
export interface DevicePlatform {
  /** As `process.platform` says it. */
  readonly name: string;
  /** Linux under Windows: the card is Windows's, and WDDM's rules hold. */
  readonly wsl: boolean;
  /** True when pids of the driver are pids here. */
  readonly firstPidNamespace: boolean;
}

export function devicePlatform(): DevicePlatform {
  const name = process.platform;
  if (name !== 'linux') return { name, wsl: false, firstPidNamespace: true };
  return {
    name,
    wsl: (tryText(() => readFileSync('/proc/sys/kernel/osrelease', 'utf8')) ?? '').toLowerCase().includes('microsoft'),
    firstPidNamespace: tryText(() => readlinkSync('/proc/self/ns/pid')) === firstPidNamespace,
  };
}

/** Under WDDM the driver has no per-process figures, and the desktop lives on the card. */
export function isWddm(platform: DevicePlatform): boolean {
  return platform.name === 'win32' || platform.wsl;
}

/** Names and paths to try for NVML, in order; empty where the platform has none. */
export function nvmlLibraryPaths(platform: DevicePlatform, environment: Readonly<Record<string, string | undefined>> = process.env): readonly string[] {
  if (platform.name === 'linux') {
    const found = ['libnvidia-ml.so.1', '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1', '/usr/lib64/libnvidia-ml.so.1', '/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1'];
    const ofWindows = '/usr/lib/wsl/lib/libnvidia-ml.so.1';
    return platform.wsl ? [ofWindows, ...found] : [...found, ofWindows];
  }
  if (platform.name === 'win32') {
    const root = environment['SystemRoot'] ?? 'C:\\Windows';
    const programs = environment['ProgramFiles'] ?? 'C:\\Program Files';
    return [join(root, 'System32', 'nvml.dll'), join(programs, 'NVIDIA Corporation', 'NVSMI', 'nvml.dll')];
  }
  return [];
}

/** The command of the second rung; null where the platform has none. */
export function nvidiaSmiCommand(platform: DevicePlatform): string | null {
  if (platform.name === 'linux') return platform.wsl ? '/usr/lib/wsl/lib/nvidia-smi' : 'nvidia-smi';
  return platform.name === 'win32' ? 'nvidia-smi.exe' : null;
}

/** What the devices cannot do on this platform, each as the error that a caller would get. */
export function deviceNotes(platform: DevicePlatform): readonly LeaseholdError[] {
  const lacks = (what: string): LeaseholdError => new LeaseholdError('platform_unsupported', { what, platform: platform.name });
  if (platform.name === 'linux') return isWddm(platform) ? [lacks('memory by process (WDDM)')] : [];
  if (platform.name === 'win32') return [lacks('memory by process (WDDM)'), lacks('the amdgpu rung')];
  return [lacks('NVML'), lacks('nvidia-smi'), lacks('the amdgpu rung')];
}

function tryText(read: () => string): string | null {
  try {
    return read();
  } catch (error) {
    // Not there or not ours to read: then it is not what was asked about. Anything else is a fault.
    if (error instanceof Error && 'code' in error) return null;
    throw error;
  }
}
