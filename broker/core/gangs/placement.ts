/** A placement over several cards: a worker for all of them, or none. */
import { tell } from '../requests/admission.js';
import { mustCard } from '../must.js';
import { joinHost, placeOn } from '../requests/placement.js';
import type { Core, Waiter } from '../state.js';

/** The floor fits on each of its cards: its worker is started, unless there is one by now or too many are alive. */
export function placeGang(core: Core, members: readonly Waiter[]): void {
  const speaker = members.find((waiter) => waiter.kind === 'place' && waiter.speaks);
  if (speaker?.kind !== 'place' || joinHost(core, speaker)) return;
  const outcome = placeOn(core, speaker);
  if (outcome !== 'done') tell(core, mustCard(core, speaker.device), speaker, outcome);
}
