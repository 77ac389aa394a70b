/** Whether a broker that ran before us owns the cards that our `devices` ask for. */
import { LeaseholdError } from '../../protocol/index.js';
import type { CardView } from '../../broker/core/view.js';
import { inWords } from '../../broker/core/report.js';
import { isSimulatedSpec, parseSimulatedSpec } from '../../broker/devices/simulated-spec.js';
import { normaliseDevice } from '../../broker/devices/uuid.js';

type Owned = Pick<CardView, 'device' | 'kind' | 'totalBytes'>;

/** What to tell whoever asked for other cards than these; null: each word has a card, or asks for none by itself. */
export function otherCards(words: readonly string[], owned: readonly Owned[], socketPath: string): LeaseholdError | null {
  const left = [...owned];
  const missed = words.filter((word) => word !== 'auto').filter((word) => {
    const found = left.findIndex((card) => isMeant(word, card));
    if (found >= 0) left.splice(found, 1);
    return found < 0;
  });
  if (missed.length === 0) return null;
  const cards = owned.map(({ device, totalBytes }) => (totalBytes === 0 ? device : `${device} of ${inWords(totalBytes)}`)).join(', ');
  return new LeaseholdError('config_invalid', {
    path: 'devices', where: missed.join(', '), reason: `no card of the broker that runs already at ${socketPath}, which owns ${cards}; those are used`, option: 'devices',
  }, { help: 'A stateFolder of its own gives a program a broker of its own; to use the one that runs, leave devices out.' });
}

function isMeant(word: string, { device, kind, totalBytes }: Owned): boolean {
  if (word === 'cpu') return kind === 'cpu';
  if (isSimulatedSpec(word)) return kind === 'simulated' && totalBytes === parseSimulatedSpec(word).totalBytes;
  return device === normaliseDevice(word);
}
