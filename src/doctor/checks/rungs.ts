/** The truth ladder, rung by rung: what answers, how well, and why not. And what is on the bus that none of them shows. */
import { isWddm } from '../../../broker/devices/platform.js';
import { defaultLimits, type TruthSource } from '../../../protocol/index.js';
import { formatCount, formatMs } from '../../cli/terminal/size-format.js';
import { driverAdvice } from '../advice/driver.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, type Fault, type Found } from '../finding.js';
import type { Machine } from '../machine/machine.js';
import { readPciCards, type Maker, type PciCard } from '../machine/pci.js';
import { cardsDeadlineMs, type Scene } from '../scene.js';
import type { RungSeen } from '../survey.js';

type Working = Extract<RungSeen, { readonly works: true }>;

/** A reading this slow is near the deadline at which the rung is given up. */
const slowReadShare = 0.5;

const nvml = rungCheck('nvml', 'NVML', (seen, { platform }) => {
  const { driver, library, cards } = seen.found;
  const read = seen.readings.filter((reading) => reading.kind === 'read');
  const counting = [...new Set(read.map((reading) => reading.counting ?? 'v1'))];
  const byProcess = cards.every(({ confirms }) => confirms === 'process');
  const found = `${library ?? 'libnvidia-ml'}, driver ${driver}, ${formatCount(cards.length, 'card')}${counting.length === 0 ? '' : `, counting as ${counting.join(' and ')}`}${pace(seen)}, memory by process: ${byProcess ? 'yes' : 'no'}`;
  return [found, [
    counting.includes('v1') ? { verdict: 'warning', says: 'v1 counts what the driver keeps for itself as used', advice: 'A driver of branch 510 or newer counts as v2 does.' } : null,
    cards.length > 0 && !byProcess ? processFault(platform) : null,
  ]];
});

function processFault(platform: Machine['platform']): Fault {
  const because = isWddm(platform) ? 'under WDDM the driver does not tell' : platform.firstPidNamespace ? 'the driver does not tell' : 'the driver\'s pids are those of the machine, and this is a container\'s namespace';
  const advice = isWddm(platform) ? 'Releases are confirmed by the card\'s total instead, one at a time: slower, and as safe.'
    : platform.firstPidNamespace ? 'Run as the user whose processes are on the card, or as root; until then releases are confirmed by the card\'s total.'
      : 'Share the machine\'s pid namespace (`docker run --pid=host`, `hostPID: true`); until then releases are confirmed by the card\'s total, one at a time.';
  return { verdict: 'warning', says: because, advice };
}

const nvidiaSmi = rungCheck('nvidia-smi', 'nvidia-smi', (seen) => [`driver ${seen.found.driver}, ${formatCount(seen.found.cards.length, 'card')}${pace(seen)}`, []]);
const amdgpu = rungCheck('amdgpu', 'amdgpu (sysfs)', (seen) => [`driver ${seen.found.driver}, ${formatCount(seen.found.cards.length, 'card')}${pace(seen)}`, []]);

function rungCheck(truth: TruthSource, title: string, describe: (seen: Working, machine: Machine) => readonly [string, readonly (Fault | null)[]]): Check {
  return {
    id: `rungs.${truth}`,
    title,
    deadlineMs: cardsDeadlineMs,
    async run(scene) {
      const rungs = await scene.rungs();
      const seen = rungs.find((rung) => rung.truth === truth);
      if (seen === undefined) return notApplicable('not on this platform');
      if (!seen.works) return judgeAbsence(scene, seen.reason, truth, rungs);
      const [found, faults] = describe(seen, scene.machine);
      return assess(found, [...faults, slowFault(seen), ...unreadFaults(seen)]);
    },
  };
}

/** A rung that does not work is a problem where it has cards to show, and nothing where there are none. */
async function judgeAbsence(scene: Scene, reason: string, truth: TruthSource, rungs: readonly RungSeen[]): Promise<Found> {
  const maker = truth === 'amdgpu' ? 'amd' : 'nvidia';
  const sibling = rungs.find((rung) => rung.works && maker === (rung.truth === 'amdgpu' ? 'amd' : 'nvidia'));
  if (sibling !== undefined) {
    const advice = truth === 'nvml' ? `${driverAdvice(reason)} Meanwhile ${sibling.truth} is read: slower, without memory by process.` : `Without it nothing takes over when ${sibling.truth} hangs. ${driverAdvice(reason)}`;
    return assess(reason, [{ verdict: 'warning', says: '', advice }]);
  }
  const onBus = (await readPciCards(scene.machine)).some((card) => card.maker === maker) || await hasModule(scene.machine, maker);
  return onBus ? problem(reason, driverAdvice(reason)) : notApplicable(`no ${maker === 'amd' ? 'AMD' : 'NVIDIA'} card`);
}

async function hasModule(machine: Machine, maker: Maker): Promise<boolean> {
  return (await machine.readText(maker === 'amd' ? '/sys/module/amdgpu/version' : '/proc/driver/nvidia/version')) !== null;
}

function pace({ readMs }: Working): string {
  return readMs === null ? '' : `, a reading in ${readMs < 10 ? readMs.toFixed(1) : String(Math.round(readMs))} ms`;
}

function slowFault({ readMs, truth }: Working): Fault | null {
  if (readMs === null || readMs < defaultLimits.probeTimeoutMs * slowReadShare) return null;
  return { verdict: 'warning', says: `${formatMs(readMs)} is near the ${formatMs(defaultLimits.probeTimeoutMs)} after which ${truth} is given up`, advice: 'Switch persistence mode on (`sudo nvidia-smi -pm 1`), or raise limits.probeTimeoutMs.' };
}

function unreadFaults({ readings }: Working): readonly Fault[] {
  return readings.flatMap((reading): Fault[] => (reading.kind === 'read' ? [] : [{ verdict: 'problem', says: `${reading.device} cannot be read (${reading.reason})`, advice: driverAdvice(reading.reason) }]));
}

/** Cards that nobody drives, or that a driver has and no rung shows. */
const bus: Check = {
  id: 'rungs.bus',
  title: 'PCI bus',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const { machine } = scene;
    if (machine.platform.name !== 'linux') return notApplicable('not known on this platform');
    const cards = await readPciCards(machine);
    if (cards.length === 0) return notApplicable('no graphics card on it');
    const rungs = await scene.rungs();
    const found = cards.map(({ slot, maker, driver }) => `${maker} ${slot} (${driver ?? 'no driver'})`).join(', ');
    return assess(found, [...cards.map(driverFault), hiddenFault('nvidia', cards, rungs), hiddenFault('amd', cards, rungs), ...await nodesFault(machine, cards)]);
  },
};

const rightDriver: Readonly<Record<Maker, string | null>> = { nvidia: 'nvidia', amd: 'amdgpu', intel: null };

function driverFault({ slot, maker, driver }: PciCard): Fault | null {
  const right = rightDriver[maker];
  if (right === null || driver === right) return null;
  if (driver === 'vfio-pci') return { verdict: 'warning', says: `${slot} is handed to a virtual machine`, advice: 'That card cannot be leased here; leave it so if it is meant to be.' };
  return { verdict: 'problem', says: `${slot} is ${driver === null ? 'not driven by anything' : `driven by ${driver}`}`, advice: `Install and load the ${right} driver${driver === 'nouveau' ? ', and keep nouveau off (`echo blacklist nouveau | sudo tee /etc/modprobe.d/no-nouveau.conf`, then reboot)' : ''}.` };
}

function hiddenFault(maker: 'nvidia' | 'amd', cards: readonly PciCard[], rungs: readonly RungSeen[]): Fault | null {
  const driven = cards.filter((card) => card.maker === maker && card.driver === rightDriver[maker]).length;
  const shown = Math.max(0, ...rungs.map((rung) => (rung.works && (rung.truth === 'amdgpu') === (maker === 'amd') ? rung.found.cards.length + (rung.found.unmeasured?.length ?? 0) : 0)));
  if (shown >= driven) return null;
  const advice = maker === 'nvidia' ? 'In a container it shows the cards it was given alone (`--gpus`, NVIDIA_VISIBLE_DEVICES); else one may have fallen off the bus: `dmesg | grep -i xid`.' : 'Only cards with memory figures in sysfs are shown, and those without a unique id only when they are alone.';
  return { verdict: 'warning', says: `the driver has ${formatCount(driven, 'card')}, and ${String(shown)} can be read`, advice };
}

/** A card is used through a file in /dev: in a container it may not be there, and it may be for some users alone. */
async function nodesFault(machine: Machine, cards: readonly PciCard[]): Promise<readonly (Fault | null)[]> {
  const drives = (driver: string): boolean => cards.some((card) => card.driver === driver);
  const nvidia = (await machine.names('/dev')).filter((name) => /^nvidia(\d+|-uvm)$/.test(name));
  const render = (await machine.names('/dev/dri')).filter((name) => /^renderD\d+$/.test(name)).map((name) => `dri/${name}`);
  return [
    !drives('nvidia') ? null : nvidia.every((name) => name === 'nvidia-uvm') ? { verdict: 'problem', says: 'there is no /dev/nvidia0', advice: 'In a container, start it with `--gpus all`; else run `sudo nvidia-modprobe`.' }
      : nvidia.includes('nvidia-uvm') ? await useFault(machine, nvidia)
        : { verdict: 'warning', says: '/dev/nvidia-uvm is not there', advice: 'CUDA needs it: run `sudo nvidia-modprobe -u`.' },
    !drives('amdgpu') ? null : render.length === 0 ? { verdict: 'problem', says: 'there is no /dev/dri/renderD128', advice: 'In a container, start it with `--device /dev/kfd --device /dev/dri`.' } : await useFault(machine, render),
  ];
}

async function useFault(machine: Machine, names: readonly string[]): Promise<Fault | null> {
  for (const name of names) {
    if (!(await machine.mayUse(`/dev/${name}`))) return { verdict: 'problem', says: `this user may not open /dev/${name}`, advice: 'Add the user to the groups that own it (`ls -l` tells; most often `video` and `render`) and log in anew.' };
  }
  return null;
}

/** With no card at all there is nothing to lease, and nothing wrong with that. */
const any: Check = {
  id: 'rungs.ladder',
  title: 'In all',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const rungs = await scene.rungs();
    const working = rungs.filter(({ works }) => works).map(({ truth }) => truth);
    if (working.length > 0) return ok(working.join(', then '));
    return ok('none works here: models run on the CPU, where nothing is leased');
  },
};

export const rungChecks: readonly Check[] = [nvml, nvidiaSmi, amdgpu, bus, any];
