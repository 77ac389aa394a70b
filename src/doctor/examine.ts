/** Carries checks out in this process. Each has a deadline; one that fails or does not answer is a finding like any other. */
import { durationText } from '../../protocol/index.js';
import { within } from '../../broker/devices/deadline.js';
import { checkDeadlineMs, type Check } from './check.js';
import { problem, type Finding, type Found } from './finding.js';
import type { Scene } from './scene.js';

export interface Listener {
  onBegun(id: string): void;
  /** Once for each check that has begun. */
  onFound(id: string, findings: readonly Finding[]): void;
}

/** Checks that only look, side by side at most. */
const besideMax = 8;

/** Resolves when every check has been answered for. Never rejects. */
export async function examine(checks: readonly Check[], scene: Scene, listener: Listener): Promise<void> {
  const waiting = checks.filter(({ alone }) => alone !== true);
  const run = async (check: Check): Promise<void> => {
    listener.onBegun(check.id);
    listener.onFound(check.id, await examineOne(check, scene));
  };
  const lane = async (): Promise<void> => {
    for (let check = waiting.shift(); check !== undefined; check = waiting.shift()) await run(check);
  };
  await Promise.all(Array.from({ length: besideMax }, lane));
  for (const check of checks) if (check.alone === true) await run(check);
}

async function examineOne(check: Check, scene: Scene): Promise<readonly Finding[]> {
  const deadlineMs = check.deadlineMs ?? checkDeadlineMs;
  const controller = new AbortController();
  try {
    // In a promise of its own: what it throws at once is caught as what it rejects with.
    const found = await within(deadlineMs, (async () => check.run(scene, controller.signal))());
    controller.abort();
    return findingsOf(check, found ?? problem(
      `it gave no answer within ${durationText(deadlineMs)}`,
      'Something it asks hangs: a driver, a file system that is not there, or a machine under too much load. Look at `dmesg`, and run `leasehold doctor` again when the machine is quiet.',
    ));
  } catch (error) {
    return findingsOf(check, failedCheck(error));
  }
}

/** The check could not be carried out: that is no good news either. */
function failedCheck(error: unknown): Found {
  return problem(`it could not be checked: ${error instanceof Error ? error.message : String(error)}`, 'What it needs is out of order, or this check is: if the message does not tell, please report it with the output of `leasehold doctor --json`.');
}

export function findingsOf(check: Pick<Check, 'id' | 'title'>, found: Found | readonly Found[]): readonly Finding[] {
  const all = 'verdict' in found ? [found] : found;
  return all.map(({ verdict, found: seen, advice, about, title }) => ({
    id: about === undefined ? check.id : `${check.id}.${about}`, title: title ?? check.title, verdict, found: seen, advice,
  }));
}
