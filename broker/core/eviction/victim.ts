/** Who asks for room, and who could leave for it. */
import type { RequestClass } from '../../../protocol/index.js';
import type { Lease, Waiter } from '../state.js';
import type { VictimCandidate } from './victim-policy.js';

/** Who asks. A model is never a victim of its own request (D1). */
export interface Seeker {
  readonly generation: string;
  readonly model: string;
  readonly class: RequestClass;
  /** A placement names no process of its own: its model is spared wherever it runs. */
  readonly placing: boolean;
  /** What was granted, or started, at that moment or after is spared; left out: nothing is for that. */
  readonly untilUs?: number;
  /** Its model has failed to load since then: who has been used since is spared. Null: it has not failed. */
  readonly failingSinceUs: number | null;
  /** The request itself once it has waited as long as its class may: no damping keeps it from its room, and no worker by what only waits behind it. Null: it has not. */
  readonly overdue: Waiter | null;
}

export interface Victim extends VictimCandidate {
  readonly lease: Lease | null;
  readonly generation: string;
  readonly busy: boolean;
  /** Its process is to end when all that it hosts has left: nothing of it is parked. */
  readonly ends: boolean;
}
