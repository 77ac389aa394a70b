/**
 * Room to park. A victim that could be parked, but for room in the machine's memory, is worth more there than the copies
 * of models that are on their cards; those make room first, where they can and where it pays, and the victim stays for
 * the moment. If that takes too long it is unloaded.
 */
import { inMs } from '../clock.js';
import { couldPark } from '../eviction/plan.js';
import { explained, hostLeavingBytes, parkedWorthMs, redundantCopies, trimAll } from './eviction.js';
import { parkShortBytes } from './share.js';
import { explain, inWords } from '../report.js';
import type { Core, Lease } from '../state.js';
import { cheapestSet } from '../eviction/victim-policy.js';

/** True while the victim waits for room to be parked; the first time, whatever makes that room is told to. */
export function makesRoomToPark(core: Core, lease: Lease): boolean {
  const { host } = core;
  const { host: share } = lease;
  if (host === null || share === null || !couldPark(core, lease)) return false;
  const shortBytes = parkShortBytes(core, lease);
  if (shortBytes === null || shortBytes === 0) return false;
  if (share.parkUntilUs !== null) return share.parkUntilUs > core.attendedUs;
  if (shortBytes > hostLeavingBytes(core, host) && !trimFor(core, lease, shortBytes - hostLeavingBytes(core, host))) return false;
  share.parkUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  return true;
}

/** Has redundant copies make the room, if they can and what they are worth is less than what parking saves. */
function trimFor(core: Core, lease: Lease, bytes: number): boolean {
  const copies = redundantCopies(core, { generation: lease.generation, model: lease.model, class: lease.class, placing: false, failingSinceUs: null, overdue: null });
  const chosen = cheapestSet(bytes, copies)?.map((place) => copies[place]).filter((victim) => victim !== undefined) ?? null;
  if (chosen === null) return false;
  const costMs = chosen.reduce((sum, victim) => sum + victim.costMs, 0);
  if (costMs >= parkedWorthMs(core, lease)) return false;
  explain(core, {
    verdict: 'evicting', generation: lease.generation, model: lease.model, device: core.host?.device ?? lease.device,
    text: `parking ${lease.model} needs ${inWords(bytes)} more of the machine's memory: ${String(chosen.length)} redundant cop${chosen.length === 1 ? 'y goes' : 'ies go'} first`,
    victims: chosen.flatMap((victim) => explained(core, victim)),
  });
  for (const victim of chosen) if (victim.lease !== null) trimAll(core, victim.lease, 'park', `room in the machine's memory to park ${lease.model}`);
  return true;
}
