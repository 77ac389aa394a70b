/** The environment that shows a worker its cards and hides every other, whoever made it. */
import type { CardDescription } from './types.js';

/** HIP reads CUDA_VISIBLE_DEVICES too when its own name is unset, so each maker's card hides the other's by name. */
const hidden = '-1';

/** An NVIDIA card or MIG slice, by UUID. The order is fixed as well: what reports indices then counts as NVML does. */
export function nvidiaVisibility(device: string): Readonly<Record<string, string>> {
  return {
    CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
    CUDA_VISIBLE_DEVICES: device,
    ROCR_VISIBLE_DEVICES: hidden,
    HIP_VISIBLE_DEVICES: hidden,
  };
}

/** An AMD card. `rocrName` is its ROCr name (`GPU-<unique id>`) or index; HIP counts from 0 within what ROCr shows. */
export function amdVisibility(rocrName: string): Readonly<Record<string, string>> {
  return {
    ROCR_VISIBLE_DEVICES: rocrName,
    HIP_VISIBLE_DEVICES: '0',
    CUDA_VISIBLE_DEVICES: hidden,
  };
}

const nothing: Readonly<Record<string, string>> = { CUDA_VISIBLE_DEVICES: hidden, ROCR_VISIBLE_DEVICES: hidden, HIP_VISIBLE_DEVICES: hidden };

/**
 * Shows exactly these cards, in the order of their UUIDs, so that what counts from 0 within them counts as the broker
 * does. A process without a real card sees none: what it took there would be nobody's.
 */
export function visibilityOf(cards: readonly CardDescription[]): Readonly<Record<string, string>> {
  const real = cards.filter(({ kind }) => kind === 'gpu').sort((a, b) => (a.device < b.device ? -1 : 1));
  if (real.length === 0) return nothing;
  const [first] = real;
  if (real.length === 1 && first !== undefined) return first.visibility;
  const nvidia = shown(real, 'CUDA_VISIBLE_DEVICES');
  const amd = shown(real, 'ROCR_VISIBLE_DEVICES');
  return {
    ...(nvidia.length > 0 ? { CUDA_DEVICE_ORDER: 'PCI_BUS_ID' } : {}),
    CUDA_VISIBLE_DEVICES: listOf(nvidia),
    ROCR_VISIBLE_DEVICES: listOf(amd),
    HIP_VISIBLE_DEVICES: listOf(amd.map((_, index) => String(index))),
  };
}

function shown(cards: readonly CardDescription[], name: string): readonly string[] {
  return cards.map(({ visibility }) => visibility[name]).filter((value): value is string => value !== undefined && value !== hidden);
}

function listOf(values: readonly string[]): string {
  return values.length === 0 ? hidden : values.join(',');
}
