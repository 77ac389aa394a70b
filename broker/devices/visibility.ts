/** The environment that shows a worker one card and hides every other, whoever made it. */

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
