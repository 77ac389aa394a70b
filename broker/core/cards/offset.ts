/**
 * Delegated eviction (R30-R33): when room is asked of a foreign manager that
 * frees `target - its own free figure`, the difference between its figure and
 * the device's cancels. A change of variables, not a correction: never tuned.
 */

export interface DelegatedEviction {
  /** What the request needs on the device, headroom, reserve and floor included. */
  readonly needBytes: number;
  /** Free memory as the manager's own process sees it (on WDDM: its partition). */
  readonly blindFreeBytes: number;
  /** Memory that the manager's allocator holds and would reuse; part of its free figure, none of the device's (R31). */
  readonly reusableCacheBytes: number;
  /** Free memory of the device across processes, measured. */
  readonly trueFreeBytes: number;
  /** The manager's free figure has become device-wide: the term would correct twice (R33). */
  readonly hostFreeIsDeviceWide: boolean;
}

export interface EvictionTarget {
  /** Ask the manager for this much free. */
  readonly targetBytes: number;
  /** Signed (R32): an idle WDDM process legitimately sees less than is free. */
  readonly offsetBytes: number;
  /** What it will then free: the true shortfall; 0 when there is none. */
  readonly willFreeBytes: number;
}

/** The target to pass on. Pure; exact for every safe integer. */
export function evictionTarget(eviction: DelegatedEviction): EvictionTarget {
  const { needBytes, trueFreeBytes, hostFreeIsDeviceWide } = eviction;
  const blindFreeBytes = eviction.blindFreeBytes - eviction.reusableCacheBytes;
  const offsetBytes = hostFreeIsDeviceWide ? 0 : blindFreeBytes - trueFreeBytes;
  const targetBytes = needBytes + offsetBytes;
  return { targetBytes, offsetBytes, willFreeBytes: Math.max(0, targetBytes - blindFreeBytes) };
}
