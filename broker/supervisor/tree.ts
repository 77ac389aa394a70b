/** Which processes belong to a worker. Pure. */
import type { ProcessRow } from './process-table.js';
import type { ProcessIdentity } from './types.js';

export interface TreeRoot {
  readonly leader: ProcessIdentity;
  readonly token: string;
  /** Members seen before, pid to start time: they stay members wherever they went since. */
  readonly seen: ReadonlyMap<number, string>;
}

/**
 * The living members of a worker's tree, itself included: whoever carries its token, shares its session or group, was
 * seen in it before, or was started by a member. No single sign is enough: a program may clear or overwrite its
 * environment (setproctitle does), call setsid, or lose its parent. `spared` are never members (the broker, the guard).
 */
export function membersOf(rows: readonly ProcessRow[], root: TreeRoot, spared: ReadonlySet<number>): readonly ProcessRow[] {
  const { leader, token, seen } = root;
  const holder = rows.find(({ pid }) => pid === leader.pid);
  // A number is not given out again while a group or session bears it; once somebody else has it, those are gone.
  const numberIsOurs = holder === undefined || leader.startTime === null || holder.startTime === leader.startTime;
  const members = new Map<number, ProcessRow>();
  const candidates = rows.filter(({ pid, ended }) => !ended && !spared.has(pid));
  for (const row of candidates) {
    const byNumber = numberIsOurs && (row.session === leader.pid || row.group === leader.pid || row.pid === leader.pid);
    if (row.token === token || byNumber || seen.get(row.pid) === row.startTime) members.set(row.pid, row);
  }
  // Children of members, and theirs: parents may stand after their children in the list, so until nothing is added.
  for (let added = members.size > 0; added;) {
    added = false;
    for (const row of candidates) {
      if (members.has(row.pid) || !members.has(row.parentPid)) continue;
      members.set(row.pid, row);
      added = true;
    }
  }
  return [...members.values()];
}
