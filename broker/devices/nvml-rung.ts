/** The first rung: NVML, in a helper process, by UUID. */
import { fileURLToPath } from 'node:url';
import { defaultLimits } from '../../protocol/index.js';
import { cleanEnvironment } from '../supervisor/environment.js';
import { nodeCommand } from '../supervisor/node-command.js';
import type { Confirmation } from '../core/events.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import type { DeviceLog } from './device-log.js';
import { NvmlClient } from './nvml-client.js';
import type { HelperCommand } from './nvml-helper-process.js';
import type { HelperCard, HelperSetup } from './nvml-messages.js';
import { devicePlatform, isWddm, nvmlLibraryPaths, type DevicePlatform } from './platform.js';
import type { CardDescription, Discovery, Reading, Rung } from './types.js';
import { nvidiaVisibility } from './visibility.js';

export interface NvmlRungOptions {
  /** Default: where the platform keeps it. */
  readonly libraryPaths?: readonly string[];
  readonly probeTimeoutMs?: number;
  /** For opening the driver and listing the cards. Default 20 s: without a persistence daemon each open wakes the cards. */
  readonly discoverTimeoutMs?: number;
  readonly backoffFirstMs?: number;
  readonly backoffLastMs?: number;
  readonly platform?: DevicePlatform;
  /** Default: our own helper under our own Node. */
  readonly helper?: HelperCommand;
  /** Added to the helper's environment. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly nowUs?: () => number;
  readonly log?: DeviceLog;
}

/** The longest rest between two helpers: a driver that has been repaired is noticed within it. */
const restMsMax = 30_000;

export function createNvmlRung(options: NvmlRungOptions = {}): Rung {
  const platform = options.platform ?? devicePlatform();
  const nowUs = options.nowUs ?? monotonicUs;
  const probeTimeoutMs = options.probeTimeoutMs ?? defaultLimits.probeTimeoutMs;
  const discoverTimeoutMs = options.discoverTimeoutMs ?? 20_000;
  const client = new NvmlClient({
    helper: options.helper ?? helperCommand(options.libraryPaths ?? nvmlLibraryPaths(platform), options.environment ?? {}),
    startTimeoutMs: discoverTimeoutMs,
    backoffFirstMs: options.backoffFirstMs ?? defaultLimits.backoffFirstMs,
    backoffLastMs: options.backoffLastMs ?? restMsMax,
    nowUs,
    ...(options.log === undefined ? {} : { log: options.log }),
  });

  return {
    truth: 'nvml',
    async discover(): Promise<Discovery> {
      const opened = await client.open();
      if (opened.kind === 'missing') return { unavailable: opened.reason };
      if (opened.message.say !== 'ready') return { unavailable: opened.message.say === 'unavailable' ? opened.message.reason : 'the helper spoke out of turn' };
      const outcome = await client.ask({ ask: 'discover' }, discoverTimeoutMs);
      if (outcome.kind === 'missing') return { unavailable: outcome.reason };
      if (outcome.message.say !== 'cards') return { unavailable: outcome.message.say === 'failed' ? outcome.message.reason : 'the helper spoke out of turn' };
      return { driver: opened.message.driver, library: opened.message.library, ...sortCards(outcome.message.cards, platform) };
    },
    async read(device): Promise<Reading> {
      const askedAtUs = nowUs();
      const outcome = await client.ask({ ask: 'read', device }, probeTimeoutMs);
      if (outcome.kind === 'missing') return { kind: 'missing', device, takenAtUs: askedAtUs, reading: outcome.reading, reason: outcome.reason };
      if (outcome.message.say !== 'reading') return { kind: 'missing', device, takenAtUs: askedAtUs, reading: 'unknown', reason: 'the helper spoke out of turn' };
      const reading = outcome.message.reading;
      if (reading.kind === 'missing') return { device, ...reading };
      return { device, truth: 'nvml', ...reading, processes: pidsAreOurs(platform) ? reading.processes : null };
    },
    close: () => client.close(),
  };
}

function helperCommand(libraryPaths: readonly string[], environment: Readonly<Record<string, string>>): HelperCommand {
  const setup: HelperSetup = { libraryPaths, parentPid: process.pid };
  const script = fileURLToPath(new URL('./nvml-helper.js', import.meta.url));
  const { command, args, env } = nodeCommand(script, [JSON.stringify(setup)]);
  return { command, args, env: cleanEnvironment(process.env, { ...env, ...environment }) };
}

function sortCards(found: readonly HelperCard[], platform: DevicePlatform): Pick<Extract<Discovery, { driver: string }>, 'cards' | 'unmeasured'> {
  const cards: CardDescription[] = [];
  const unmeasured = [];
  for (const { device, name, totalBytes, display, processes, index } of found) {
    const visibility = nvidiaVisibility(device);
    const counted = { maker: 'nvidia', index } as const;
    if (totalBytes === null || totalBytes === 0) {
      unmeasured.push({ device, name, visibility, counted, reason: 'NVML gives no memory figure for this card' });
      continue;
    }
    const confirms = confirmationBy(processes, platform);
    cards.push({ device, name, kind: 'gpu', totalBytes, confirms, display: display || isWddm(platform), floorBytes: null, visibility, counted });
  }
  return { cards, unmeasured };
}

/** Where the driver does not say what a process holds, the card's total confirms a release. */
function confirmationBy(processes: boolean, platform: DevicePlatform): Confirmation {
  return processes && pidsAreOurs(platform) ? 'process' : 'total';
}

/**
 * A driver's pids are pids of the first namespace. In another one ours would seem to hold nothing, and a release would
 * be confirmed that never was.
 */
function pidsAreOurs(platform: DevicePlatform): boolean {
  return platform.firstPidNamespace && !isWddm(platform);
}
