/** The rungs of real cards, highest first, as far as the platform has them. */
import { createAmdgpuRung } from './amdgpu-rung.js';
import type { DeviceLog } from './device-log.js';
import { createNvidiaSmiRung } from './nvidia-smi-rung.js';
import { createNvmlRung } from './nvml-rung.js';
import { devicePlatform, nvidiaSmiCommand, nvmlLibraryPaths, type DevicePlatform } from './platform.js';
import type { Rung } from './types.js';

export interface RealRungsOptions {
  readonly probeTimeoutMs?: number;
  /** Another nvidia-smi than the platform's. */
  readonly nvidiaSmi?: string;
  readonly platform?: DevicePlatform;
  readonly log?: DeviceLog;
}

export function createRealRungs(options: RealRungsOptions = {}): readonly Rung[] {
  const platform = options.platform ?? devicePlatform();
  const probe = options.probeTimeoutMs === undefined ? {} : { probeTimeoutMs: options.probeTimeoutMs };
  const log = options.log === undefined ? {} : { log: options.log };
  const rungs: Rung[] = [];
  if (nvmlLibraryPaths(platform).length > 0) rungs.push(createNvmlRung({ platform, ...probe, ...log }));
  const smi = options.nvidiaSmi ?? nvidiaSmiCommand(platform);
  if (smi !== null) rungs.push(createNvidiaSmiRung({ platform, command: smi, ...probe }));
  if (platform.name === 'linux') rungs.push(createAmdgpuRung(probe));
  return rungs;
}
