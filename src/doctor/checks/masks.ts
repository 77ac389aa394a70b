/** Variables that hide cards from programs: what each names, and what of it is there. */
import { normaliseDevice } from '../../../broker/devices/index.js';
import type { Check } from '../check.js';
import { assess, ok, type Fault, type Found } from '../finding.js';
import { cardsDeadlineMs } from '../scene.js';
import type { CardSeen } from '../survey.js';

interface Mask {
  readonly name: string;
  /** Which cards it counts and names. */
  readonly cards: 'nvidia' | 'amd' | 'vulkan';
  /** Words with a meaning of their own, and that meaning. */
  readonly words: Readonly<Record<string, string>>;
}

const none = 'no card';
const all = 'all cards';

const masks: readonly Mask[] = [
  { name: 'CUDA_VISIBLE_DEVICES', cards: 'nvidia', words: { '': none, '-1': none, 'NoDevFiles': none } },
  { name: 'NVIDIA_VISIBLE_DEVICES', cards: 'nvidia', words: { all, none: 'no card, the driver\'s tools alone', void: none } },
  { name: 'ROCR_VISIBLE_DEVICES', cards: 'amd', words: { '-1': none } },
  { name: 'HIP_VISIBLE_DEVICES', cards: 'amd', words: { '-1': none } },
  { name: 'GPU_DEVICE_ORDINAL', cards: 'amd', words: {} },
  { name: 'GGML_VK_VISIBLE_DEVICES', cards: 'vulkan', words: { '': none } },
];

/** Our own are set over these: they hide nothing from the broker. */
const whatItDoes = 'Leasehold finds cards by UUID and gives each worker a mask of its own, so it does not go by this one. To keep it to some cards, list their UUIDs under `devices` (or --device); programs beside it go by the mask.';

const masksCheck: Check = {
  id: 'masks',
  title: 'Masks',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const { env } = scene.machine;
    const cards = await scene.cards();
    const set = masks.flatMap((mask) => {
      const value = env[mask.name];
      return value === undefined ? [] : [{ ...judgeMask(mask, value, cards, env), about: mask.name, title: mask.name }];
    });
    return set.length === 0 ? { ...ok('none is set'), title: 'Variables' } : set;
  },
};

export function judgeMask(mask: Mask, value: string, cards: readonly CardSeen[], env: NodeJS.ProcessEnv): Found {
  const known = cards.filter(({ readings, device }) => mask.cards === 'vulkan' || readings.some(({ truth }) => (truth === 'amdgpu') === (mask.cards === 'amd')) || device.startsWith('MIG-'));
  const meaning = mask.words[value.trim()];
  if (meaning !== undefined) {
    const hides = meaning !== all && known.length > 0 && mask.name !== 'NVIDIA_VISIBLE_DEVICES';
    return assess(`${JSON.stringify(value)}: ${meaning}`, [hides ? { verdict: 'warning', says: '', advice: whatItDoes } : null]);
  }
  const entries = value.split(',').map((entry) => entry.trim());
  const named = entries.map((entry) => ({ entry, device: nameOf(entry, known) }));
  const unknown = named.findIndex(({ device }) => device === null);
  const found = named.map(({ entry, device }) => `${entry} is ${device ?? 'no card here'}`).join(', ');
  const doubled = entries.find((entry, index) => entries.indexOf(entry) !== index);
  return assess(found, [
    unknown === -1 ? null : { verdict: 'warning', says: unknown === named.length - 1 ? '' : 'CUDA goes no further than the first that it does not know', advice: `Correct ${mask.name}: ${known.length === 0 ? 'there is no such card here at all' : `here are ${known.map(({ device }) => device).join(', ')}`}.` },
    doubled === undefined ? null : { verdict: 'warning', says: `${doubled} stands there twice, which CUDA takes for none at all`, advice: `Name each card once in ${mask.name}.` },
    byIndexFault(mask, entries, known, env),
    unknown === -1 && named.length < known.length ? { verdict: 'warning', says: `${String(known.length - named.length)} of ${String(known.length)} cards are hidden`, advice: whatItDoes } : null,
  ]);
}

/** CUDA counts the fastest first unless told otherwise; everything else counts by bus. */
function byIndexFault({ name }: Mask, entries: readonly string[], known: readonly CardSeen[], env: NodeJS.ProcessEnv): Fault | null {
  const mixed = new Set(known.map((card) => card.name)).size > 1;
  if (name !== 'CUDA_VISIBLE_DEVICES' || !mixed || env['CUDA_DEVICE_ORDER'] === 'PCI_BUS_ID' || !entries.some((entry) => /^\d+$/.test(entry))) return null;
  return { verdict: 'warning', says: 'an index is another card for CUDA (fastest first) than for nvidia-smi (by bus)', advice: 'Name cards by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID.' };
}

/** An index counts what a driver lists, in its order; a name may be cut short as long as it is one card's. Null: it names none. */
function nameOf(entry: string, known: readonly CardSeen[]): string | null {
  if (/^\d+(:\d+)?$/.test(entry)) return known[Number(entry.split(':')[0])]?.device ?? null;
  const whole = normaliseDevice(entry);
  const exact = known.find(({ device }) => device === whole);
  if (exact !== undefined) return exact.device;
  const begun = known.filter(({ device }) => entry.length > 'GPU-'.length && device.toLowerCase().startsWith(entry.toLowerCase()));
  return begun.length === 1 ? begun[0]?.device ?? null : null;
}

export const maskChecks: readonly Check[] = [masksCheck];
