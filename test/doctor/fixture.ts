/** Machines for checks: a folder with files of another machine, commands of our own, rungs that say what they are told. */
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import type { CardDescription, Discovery, Reading, Rung } from '../../broker/devices/index.js';
import type { TruthSource } from '../../protocol/index.js';
import { createMachine, type Machine } from '../../src/doctor/machine/machine.js';
import { createScene, type Scene, type SceneOptions } from '../../src/doctor/scene.js';
import type { Check } from '../../src/doctor/check.js';
import { allChecks } from '../../src/doctor/index.js';
import { findingsOf } from '../../src/doctor/examine.js';
import type { Finding } from '../../src/doctor/finding.js';

export const linux = { name: 'linux', wsl: false, firstPidNamespace: true } as const;
export const first = 'GPU-11111111-2222-3333-4444-555555555555';
export const second = 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee';
export const mebibyte = 1_024 ** 2;
export const gibibyte = 1_024 ** 3;

export interface FixtureOptions {
  /** By path below the root; a value that begins with `->` is a link to the rest. */
  readonly files?: Readonly<Record<string, string>>;
  /** Shell scripts by the name they are called. */
  readonly commands?: Readonly<Record<string, string>>;
  readonly env?: NodeJS.ProcessEnv;
  readonly uid?: number | null;
  readonly platform?: Machine['platform'];
}

/** `folder`: an empty one of the test. */
export function fixtureMachine(folder: string, { files = {}, commands = {}, env = {}, ...options }: FixtureOptions = {}): Machine {
  const root = join(folder, 'root');
  const bin = join(folder, 'bin');
  mkdirSync(root, { recursive: true });
  mkdirSync(bin, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    if (text.startsWith('->')) symlinkSync(text.slice(2), join(root, path));
    else writeFileSync(join(root, path), text);
  }
  for (const [name, body] of Object.entries(commands)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${body}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  return createMachine({ root, platform: linux, env: { PATH: [bin, '/usr/bin', '/bin'].join(delimiter), LEASEHOLD_CONFIG: '', ...env }, cwd: folder, home: folder, ...options });
}

/** A scene without any card, unless told. */
export function fixtureScene(folder: string, options: FixtureOptions & Omit<SceneOptions, 'machine'> = {}): Scene {
  return createScene({ rungs: [], cardLocksPath: join(folder, 'cards'), ...options, flags: { state: join(folder, 'state'), ...options.flags }, machine: fixtureMachine(folder, options) });
}

export async function findingsBy(scene: Scene, id: string): Promise<readonly Finding[]> {
  const check: Check | undefined = allChecks.find((each) => each.id === id);
  if (check === undefined) throw new Error(`there is no check ${id}`);
  return findingsOf(check, await check.run(scene, new AbortController().signal));
}

export async function findingBy(scene: Scene, id: string): Promise<Finding> {
  const [finding, ...others] = await findingsBy(scene, id);
  if (finding === undefined || others.length > 0) throw new Error(`${id} found ${others.length + 1} things`);
  return finding;
}

export function card(device: string, changes: Partial<CardDescription> = {}): CardDescription {
  return { device, name: 'Card', kind: 'gpu', totalBytes: 24 * gibibyte, confirms: 'process', display: false, floorBytes: null, visibility: {}, ...changes };
}

export function reading(device: string, changes: Partial<Extract<Reading, { kind: 'read' }>> = {}): Reading {
  return { kind: 'read', device, takenAtUs: 1, usedBytes: gibibyte, totalBytes: 24 * gibibyte, truth: 'nvml', counting: 'v2', processes: [], ...changes };
}

export function missing(device: string, reason: string): Reading {
  return { kind: 'missing', device, takenAtUs: 1, reading: 'failed', reason };
}

/** A rung that shows these cards and reads them so. */
export function rung(truth: TruthSource, found: Discovery, readings: readonly Reading[] = []): Rung {
  return {
    truth,
    discover: async () => found,
    read: async (device) => readings.find((each) => each.device === device) ?? missing(device, 'not in this test'),
    close: async () => undefined,
  };
}

export const nvidiaOnBus: Readonly<Record<string, string>> = {
  'sys/bus/pci/devices/0000:65:00.0/vendor': '0x10de\n', 'sys/bus/pci/devices/0000:65:00.0/class': '0x030200\n', 'sys/bus/pci/devices/0000:65:00.0/driver': '->../../../bus/pci/drivers/nvidia',
  'proc/driver/nvidia/version': 'NVRM version: 580.159\n', 'dev/nvidia0': '', 'dev/nvidia-uvm': '',
};
