/**
 * The visibility masks that the broker's own process was given, by its operator or a batch system: which cards they
 * leave, whatever order they name them in. They cut down what is managed; a worker is told its cards by UUID alone.
 */
import { LeaseholdError } from '../../protocol/index.js';
import type { CardDescription, Counted } from './types.js';
import { normaliseDevice } from './uuid.js';

type Named = Pick<CardDescription, 'device' | 'name' | 'counted'>;
type Environment = Readonly<Record<string, string | undefined>>;

/** Cards as a mask counts them. */
interface Counting {
  readonly cards: readonly Named[];
  /** The order is known: card 0 is the first. */
  readonly inOrder: boolean;
}

/**
 * Those of `cards` that the masks leave. `others` are counted by them and cannot be used.
 * Throws `config_invalid` for a word that means no card, more than one, or one that only a guess could find.
 */
export function maskedCards(cards: readonly CardDescription[], others: readonly Named[], environment: Environment): readonly CardDescription[] {
  const all = [...cards, ...others];
  const kept = new Set([...nvidiaCards(madeBy(all, 'nvidia'), environment), ...amdCards(all, environment)].map(({ device }) => device));
  return cards.filter(({ device, counted }) => counted === undefined || kept.has(device));
}

function madeBy(cards: readonly Named[], maker: Counted['maker']): readonly Named[] {
  return cards.filter(({ counted }) => counted?.maker === maker);
}

/** CUDA counts the fastest first unless it is told to count as the bus does: for cards of one kind that is the same. */
function nvidiaCards(cards: readonly Named[], environment: Environment): readonly Named[] {
  const alike = new Set(cards.map(({ name }) => name)).size <= 1;
  const counting = counted(cards, alike || environment['CUDA_DEVICE_ORDER'] === 'PCI_BUS_ID');
  return cut(counting, 'CUDA_VISIBLE_DEVICES', environment).cards;
}

/** ROCr cuts first, HIP counts within what is left. Where there is no NVIDIA card, HIP heeds CUDA's mask for want of its own. */
function amdCards(all: readonly Named[], environment: Environment): readonly Named[] {
  const own = ['HIP_VISIBLE_DEVICES', 'GPU_DEVICE_ORDINAL'].find((name) => environment[name] !== undefined);
  const borrowed = madeBy(all, 'nvidia').length === 0 ? 'CUDA_VISIBLE_DEVICES' : null;
  const shown = cut(counted(madeBy(all, 'amd'), true), 'ROCR_VISIBLE_DEVICES', environment);
  const name = own ?? borrowed;
  return name === null ? shown.cards : cut(shown, name, environment).cards;
}

function counted(cards: readonly Named[], inOrder: boolean): Counting {
  const numbers = cards.map((card) => card.counted?.index ?? null);
  const sorted = [...cards].sort((a, b) => (a.counted?.index ?? 0) - (b.counted?.index ?? 0));
  return { cards: sorted, inOrder: inOrder && !numbers.includes(null) };
}

/** What the mask of that name leaves, in its order. A mask over no card at all says nothing. */
function cut(counting: Counting, name: string, environment: Environment): Counting {
  const value = environment[name];
  if (value === undefined || counting.cards.length === 0) return counting;
  const words = wordsOf(value);
  if (!counting.inOrder && namesAll(words, counting.cards.length)) return counting;
  return { cards: [...new Set(words.map((word) => find(counting, name, word)))], inOrder: true };
}

/** Each number from 0 on: all cards, whichever is which. */
function namesAll(words: readonly string[], count: number): boolean {
  const numbers = new Set(words.filter((word) => /^\d+$/.test(word)).map(Number));
  return numbers.size === count && Math.max(...numbers) === count - 1;
}

/** Up to the first that means none, where drivers stop reading, too. */
function wordsOf(value: string): readonly string[] {
  const words = value.split(',').map((word) => word.trim());
  const end = words.findIndex((word) => word === '' || /^-\d+$/.test(word) || word === 'NoDevFiles');
  return end < 0 ? words : words.slice(0, end);
}

function find(counting: Counting, name: string, word: string): Named {
  if (/^\d+$/.test(word)) return byIndex(counting, name, word);
  const exact = normaliseDevice(word);
  const found = counting.cards.filter(({ device }) => device === exact);
  const begun = found.length > 0 ? found : counting.cards.filter(({ device }) => device.toLowerCase().startsWith(word.toLowerCase()));
  const [card] = begun;
  if (card === undefined || !/^(gpu|mig)-/i.test(word)) throw refusal(name, word, `no card is called so; there are ${namesOf(counting.cards)}`);
  if (begun.length > 1) throw refusal(name, word, `it may be ${namesOf(begun)}`);
  return card;
}

function byIndex({ cards, inOrder }: Counting, name: string, word: string): Named {
  const card = cards[Number(word)];
  if (card === undefined) throw refusal(name, word, `there are ${String(cards.length)} cards, counted from 0`);
  if (inOrder) return card;
  const remedy = name === 'CUDA_VISIBLE_DEVICES' ? ', or set CUDA_DEVICE_ORDER=PCI_BUS_ID where no card is in MIG mode' : '';
  throw refusal(name, word, `these cards are not all alike, or have no number: which of ${namesOf(cards)} is meant can only be guessed; name it so${remedy}`);
}

function namesOf(cards: readonly Named[]): string {
  return cards.map(({ device, name }) => `${device} (${name})`).join(', ');
}

function refusal(name: string, word: string, reason: string): LeaseholdError {
  return new LeaseholdError('config_invalid', { path: name, where: word.slice(0, 80), reason });
}
