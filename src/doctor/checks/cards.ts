/** Each card: what it has, who is on it, how it is set. */
import { defaultReserveBytes, normaliseDevice, type Reading } from '../../../broker/devices/index.js';
import { formatBytes } from '../../cli/terminal/size-format.js';
import { driverAdvice } from '../advice/driver.js';
import { nvidiaSmiCommand } from '../../../broker/devices/platform.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, warning, type Fault, type Found } from '../finding.js';
import type { Machine } from '../machine/machine.js';
import { parseSettings, settingsQuery, type CardSettings } from '../machine/nvidia-settings.js';
import { parseXids, type Xid } from '../machine/xid.js';
import type { BrokerSeen } from '../running-broker.js';
import { cardsDeadlineMs } from '../scene.js';
import { bestReading, type CardSeen } from '../survey.js';

type Read = Extract<Reading, { kind: 'read' }>;

/** Of a card: what strangers hold beyond this is worth knowing. */
const foreignShare = 0.05;
/** Of a card: rungs that count alike differ by less, and the driver's own part is about half a percent. */
const disagreementShare = 0.03;

const cardsCheck: Check = {
  id: 'cards',
  title: 'Cards',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const cards = await scene.cards();
    if (cards.length === 0) return notApplicable('none');
    const broker = await scene.broker();
    return Promise.all(cards.map(async (card) => ({ ...await judgeCard(card, broker, scene.machine), about: card.device, title: card.name })));
  },
};

export async function judgeCard(card: CardSeen, broker: BrokerSeen, machine: Machine): Promise<Found> {
  const { description, unmeasured } = card;
  if (description === null) return warning(`${card.device}: ${unmeasured?.reason ?? 'its size is not known'}`, driverAdvice(unmeasured?.reason ?? ''));
  const best = bestReading(card);
  const missed = card.readings.flatMap(({ truth, reading }) => (reading.kind === 'missing' ? [`${truth}: ${reading.reason}`] : []));
  if (best === null) return problem(`${card.device}, ${formatBytes(description.totalBytes)}: it cannot be read (${missed.join('; ')})`, driverAdvice(missed.join(' ')));
  const reserveBytes = defaultReserveBytes(description, machine.platform.name);
  const slice = card.device.startsWith('MIG-') ? ', a MIG slice' : '';
  const display = description.display ? ', with a display' : '';
  const strangers = await strangersOn(best, broker, machine);
  const found = `${card.device}, ${formatBytes(best.usedBytes)} used of ${formatBytes(best.totalBytes)} by ${best.truth}${slice}${display}; ${formatBytes(reserveBytes)} are kept free by default${strangers.text}`;
  return assess(found, [
    missed.length === 0 ? null : { verdict: 'warning', says: `not read by ${missed.join('; ')}`, advice: driverAdvice(missed.join(' ')) },
    reserveBytes >= best.totalBytes ? { verdict: 'problem', says: 'nothing is left to lease', advice: 'Set a smaller `reserve` for it in leasehold.yaml.' } : null,
    strangers.bytes > best.totalBytes * foreignShare ? { verdict: 'warning', says: `${formatBytes(strangers.bytes)} of it are others'`, advice: 'What others hold cannot be leased, and is never evicted: end them, or have them ask for leases too.' } : null,
    disagreement(card),
  ]);
}

/** Who is on the card besides a broker's own processes. Without figures by process, all that no broker of ours leases. */
async function strangersOn(best: Read, broker: BrokerSeen, machine: Machine): Promise<{ readonly bytes: number; readonly text: string }> {
  const leased = broker.kind === 'running' ? broker.ledger.cards.find(({ device }) => device === normaliseDevice(best.device)) : undefined;
  if (best.processes === null) {
    if (leased !== undefined) return { bytes: leased.foreignBytes ?? 0, text: `; of others ${formatBytes(leased.foreignBytes)}` };
    return { bytes: best.usedBytes, text: '; by whom is not known' };
  }
  const ours = new Set(broker.kind === 'running' ? [...broker.ledger.workers, ...broker.ledger.holders].flatMap(({ pid }) => (pid === null ? [] : [pid])) : []);
  const others = best.processes.filter(({ pid }) => !ours.has(pid)).sort((a, b) => b.usedBytes - a.usedBytes);
  const named = await Promise.all(others.slice(0, 4).map(async ({ pid, usedBytes }) => `${(await machine.readText(`/proc/${String(pid)}/comm`))?.trim() ?? 'somebody'} (pid ${String(pid)}) ${formatBytes(usedBytes)}`));
  const text = others.length === 0 ? '; no process of others on it' : `; on it: ${named.join(', ')}${others.length > named.length ? ` and ${String(others.length - named.length)} more` : ''}`;
  return { bytes: others.reduce((sum, { usedBytes }) => sum + usedBytes, 0), text };
}

/** Two rungs that tell of different sizes, or of uses further apart than their ways of counting. */
function disagreement({ readings }: CardSeen): Fault | null {
  const read = readings.flatMap(({ reading }) => (reading.kind === 'read' ? [reading] : []));
  const [first, second] = read;
  if (first === undefined || second === undefined) return null;
  const apart = Math.max(Math.abs(first.totalBytes - second.totalBytes), Math.abs(first.usedBytes - second.usedBytes));
  if (apart <= first.totalBytes * disagreementShare) return null;
  return { verdict: 'warning', says: `${first.truth} says ${formatBytes(first.usedBytes)} of ${formatBytes(first.totalBytes)}, ${second.truth} ${formatBytes(second.usedBytes)} of ${formatBytes(second.totalBytes)}`, advice: 'Something moved between the two looks, or one of them is wrong: run it again on a quiet card, then update the driver.' };
}

/** Settings of NVIDIA cards that stop workers from sharing them, and errors they have counted. */
const settingsCheck: Check = {
  id: 'cards.settings',
  title: 'NVIDIA settings',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const smi = (await scene.rungs()).find(({ truth }) => truth === 'nvidia-smi');
    if (smi?.works !== true) return notApplicable('nvidia-smi shows no card');
    const outcome = await scene.machine.run(nvidiaSmiCommand(scene.machine.platform) ?? 'nvidia-smi', [`--query-gpu=${settingsQuery}`, '--format=csv,noheader,nounits']);
    const cards = outcome.kind === 'ended' ? parseSettings(outcome.stdout) : [];
    if (cards.length === 0) return warning('they could not be read', driverAdvice(outcome.kind === 'ended' ? outcome.stderr : outcome.kind));
    return judgeSettings(cards);
  },
};

export function judgeSettings(cards: readonly CardSettings[]): Found {
  const found = cards.map(({ device, computeMode, persistence, uncorrectedErrors }) => `${device.slice(0, 12)}… compute mode ${computeMode}, persistence ${persistence}, memory errors ${uncorrectedErrors === null ? 'not counted' : String(uncorrectedErrors)}`).join('; ');
  return assess(found, cards.flatMap(({ device, computeMode, persistence, uncorrectedErrors, display }): Fault[] => {
    const faults: Fault[] = [];
    if (/prohibited/i.test(computeMode)) faults.push({ verdict: 'problem', says: `${device} lets nobody compute`, advice: `\`sudo nvidia-smi -i ${device} -c DEFAULT\`` });
    if (/exclusive/i.test(computeMode)) faults.push({ verdict: 'problem', says: `${device} lets one process alone compute`, advice: `Several workers share a card: \`sudo nvidia-smi -i ${device} -c DEFAULT\` (or run MPS).` });
    if (/disabled/i.test(persistence) && !display) faults.push({ verdict: 'warning', says: `${device} is woken by each first use`, advice: 'The driver is closed when nobody has it open, and opening takes seconds: `sudo nvidia-smi -pm 1`, or run nvidia-persistenced.' });
    if ((uncorrectedErrors ?? 0) > 0) faults.push({ verdict: 'problem', says: `${device} has had ${String(uncorrectedErrors)} uncorrected memory errors since the driver was loaded`, advice: 'Take load off the card, reset it (`sudo nvidia-smi --gpu-reset`), and have it replaced if they come back.' });
    return faults;
  }));
}

/** Since the machine was started, as far as the kernel's log goes back and this user may read it. */
const xidCheck: Check = {
  id: 'cards.xid',
  title: 'Errors of the driver',
  deadlineMs: cardsDeadlineMs,
  async run({ machine }) {
    if ((await machine.readText('/proc/driver/nvidia/version')) === null) return notApplicable('no NVIDIA driver is loaded');
    const outcome = await machine.run('dmesg', []);
    if (outcome.kind !== 'ended' || outcome.exitCode !== 0) return notApplicable('this user may not read the kernel\'s log');
    return judgeXids(parseXids(outcome.stdout));
  },
};

export function judgeXids(xids: readonly Xid[]): Found {
  if (xids.length === 0) return ok('no XID in the kernel\'s log');
  const found = xids.map(({ code, slot, times, meaning }) => `XID ${String(code)} of ${slot}${times > 1 ? `, ${String(times)} times` : ''}: ${meaning}`).join('; ');
  const advice = xids.some(({ ofCard }) => ofCard) ? 'Take load off the card, reset it or reboot; if they come back, look at heat and power, and have it replaced.' : 'They are of programs that were on the card, and not of the card: look which ended then.';
  return xids.some(({ ofCard }) => ofCard) ? problem(found, advice) : warning(found, advice);
}

export const cardChecks: readonly Check[] = [cardsCheck, settingsCheck, xidCheck];
