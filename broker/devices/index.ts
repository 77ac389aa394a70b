/** Cards and what they hold: the truth ladder, its rungs, simulated cards, defaults. The broker's process opens no driver and holds no GPU context. */
export { createAmdgpuRung, type AmdgpuRungOptions } from './amdgpu-rung.js';
export { cpuCard, cpuDevice, cpuReading } from './cpu-card.js';
export type { DeviceLog } from './device-log.js';
export { DeviceLadder, type DeclaredCard, type Inventory, type LadderOptions } from './ladder.js';
export { createNvidiaSmiRung, type NvidiaSmiRungOptions } from './nvidia-smi-rung.js';
export { createNvmlRung, type NvmlRungOptions } from './nvml-rung.js';
export { deviceNotes, devicePlatform, type DevicePlatform } from './platform.js';
export { createRealRungs, type RealRungsOptions } from './real-rungs.js';
export { defaultReserveBytes } from './reserve.js';
export { CardJournal } from './card-journal.js';
export { SimulatedCard, simulatedDevice, type AllocateOutcome, type SimulatedCardOptions, type SimulatedCounters } from './simulated-card.js';
export { isSimulatedSpec, parseSimulatedSpec, type SimulatedSpec } from './simulated-spec.js';
export type * from './types.js';
export { normaliseDevice } from './uuid.js';
export { amdVisibility, nvidiaVisibility, visibilityOf } from './visibility.js';
export { maskedCards } from './mask.js';
