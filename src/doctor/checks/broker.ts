/** A broker that runs already, and who else holds cards. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { formatBytes, formatCount, formatMs } from '../../cli/terminal/size-format.js';
import { thrashAdvice, thrashText } from '../../cli/views/thrash-text.js';
import { version } from '../../version.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, warning, type Fault, type Found } from '../finding.js';
import { lockHolder, readHeldLocks } from '../locks.js';
import type { Machine } from '../machine/machine.js';
import { readProcessLimits } from '../machine/process-limits.js';
import { orphansOf } from '../orphans.js';
import { silentAdvice } from '../silent-broker.js';
import { parseSignature, type BrokerSeen } from '../running-broker.js';
import { readSmall } from '../small-file.js';

/** It answers at once, or something keeps its loop busy. */
const slowAnswerMs = 2_000;

const runningCheck: Check = {
  id: 'broker.running',
  title: 'Here',
  async run(scene) {
    const seen = await scene.broker();
    return judgeBroker(seen, version(), Date.now(), seen.kind === 'running' && seen.pid !== null ? await readDescriptors(scene.machine, seen.pid) : null);
  },
};

interface Descriptors {
  readonly open: number;
  readonly limit: number;
}

/** Beyond this share of what it may open it is about to refuse sessions. */
const fullShare = 0.8;

/** Null: not shown here, not ours to look into, or unlimited. */
async function readDescriptors(machine: Machine, pid: number): Promise<Descriptors | null> {
  const [names, limits] = [await machine.names(`/proc/${String(pid)}/fd`), await readProcessLimits(machine, pid)];
  const limit = limits?.get('Max open files')?.soft ?? null;
  return names.length === 0 || limit === null ? null : { open: names.length, limit };
}

export function judgeBroker(seen: BrokerSeen, ourVersion: string, nowMs: number, files: Descriptors | null = null): Found {
  if (seen.kind === 'none') return judgeNone(seen);
  const pid = seen.pid === null ? '' : `pid ${String(seen.pid)}`;
  const since = seen.since === null ? '' : `since ${seen.since} (${formatMs(Math.max(0, nowMs - Date.parse(seen.since)))})`;
  const who = [pid, since].filter((text) => text !== '').join(', ');
  if (seen.kind === 'unreachable') {
    return problem(`one is there (${who}) and cannot be asked: ${seen.reason}`, silentAdvice(seen.pid, seen.stopped === true));
  }
  const { ledger, answerMs } = seen;
  const cards = ledger.cards.map(({ device, totalBytes, leasedBytes }) => (totalBytes === 0 ? device : `${device} with ${formatBytes(leasedBytes)} leased of ${formatBytes(totalBytes)}`));
  const found = `one runs: ${who}, version ${ledger.version ?? 'unknown'}, ${formatCount(ledger.workers.length, 'worker')}, ${formatCount(ledger.waiting.length, 'request')} waiting; it owns ${cards.join(', ') || 'no card'}${files === null ? '' : `; ${String(files.open)} of ${String(files.limit)} files open`}`;
  const unread = ledger.cards.filter(({ missing }) => missing !== null);
  return assess(found, [
    ledger.version !== undefined && ledger.version !== ourVersion ? { verdict: 'warning', says: `this command is version ${ourVersion}`, advice: 'Start it anew with the version that is installed, once its calls are done.' } : null,
    answerMs > slowAnswerMs ? { verdict: 'warning', says: `it took ${formatMs(answerMs)} to answer`, advice: 'The machine is overloaded, or the process that embeds it blocks its own loop.' } : null,
    files !== null && files.open > files.limit * fullShare ? { verdict: 'warning', says: 'few are left', advice: 'Raise its limit (LimitNOFILE= in its unit), or find which sessions are never closed: `leasehold ps`.' } : null,
    ...unread.map(({ device, missing }): Fault => ({ verdict: 'problem', says: `it cannot read ${device} (${missing?.reading ?? 'unknown'} for ${formatMs(missing?.sinceMs ?? 0)})`, advice: 'Nothing is granted on such a card until it can be read: see the cards below.' })),
    ...ledger.cards.flatMap(({ device, thrashing }): Fault[] => (thrashing === null ? [] : [{ verdict: 'warning', says: `${device} thrashes: ${thrashText(thrashing)}`, advice: thrashAdvice }])),
  ]);
}

/** What a broker that was killed has left behind: files go with the next start, workers wait for it. */
function judgeNone({ leftovers, workers }: Extract<BrokerSeen, { readonly kind: 'none' }>): Found {
  const left = leftovers.length === 0 ? '' : `; one that was killed has left ${leftovers.slice(0, 4).join(', ')}${leftovers.length > 4 ? ', …' : ''}, which the next start removes`;
  const found = `none runs${left === '' ? ' on this state folder' : left}`;
  if (workers.length === 0) return ok(found);
  const { text, advice } = orphansOf(workers);
  return warning(`${found}; ${text}`, advice);
}

/** Cards are locked for all of a user's brokers, whatever their state folders: one elsewhere may hold what is wanted here. */
const elsewhereCheck: Check = {
  id: 'broker.elsewhere',
  title: 'Elsewhere',
  async run(scene) {
    const locks = await readHeldLocks(scene.machine);
    if (locks === null) return notApplicable('locks cannot be seen on this platform');
    const names = (await readdir(scene.cardLocksPath).catch(() => [])).filter((name) => name.endsWith('.lock'));
    const ours = await scene.broker();
    const faults = await Promise.all(names.map(async (name): Promise<Fault | null> => {
      const path = join(scene.cardLocksPath, name);
      const pid = await lockHolder(locks, path);
      if (typeof pid !== 'number' || (ours.kind === 'running' && ours.pid === pid)) return null;
      const { since, socket } = parseSignature(await readSmall(path));
      return { verdict: 'warning', says: `pid ${String(pid)} owns ${name.slice(0, -'.lock'.length)}${since === null ? '' : ` since ${since}`}`, advice: socket === null ? 'A broker here cannot own that card meanwhile.' : `A broker here cannot own that card meanwhile; attach to that one: \`--state ${join(socket, '..')}\`.` };
    }));
    const held = faults.filter((fault) => fault !== null);
    return assess(held.length === 0 ? 'no broker of this user owns a card on another state folder' : 'another broker of this user', held);
  },
};

export const brokerChecks: readonly Check[] = [runningCheck, elsewhereCheck];
