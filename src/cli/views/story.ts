/** What happens in a broker as one plain line each, for who watches its terminal. What is routine has none. */
import type { LeaseholdEvent } from '../../orchestrator/types.js';
import type { Palette } from '../terminal/colour.js';
import { formatBytes, formatCount, formatMs } from '../terminal/size-format.js';
import { plainLine } from '../terminal/width.js';
import { shortDevice, shortGeneration, type Names } from './names.js';

type Tone = 'plain' | 'warn' | 'bad';
type Line = readonly [tone: Tone, text: string] | null;

/** The values of one event, by their names. */
class Facts {
  readonly #data: LeaseholdEvent['data'];
  readonly #names: Names;

  constructor(data: LeaseholdEvent['data'], names: Names) {
    this.#data = data;
    this.#names = names;
  }

  text(field: string): string {
    const value = this.#data[field];
    return typeof value === 'string' ? value : '';
  }

  bytes(field: string): string {
    const value = this.#data[field];
    return formatBytes(typeof value === 'number' ? value : null);
  }

  ms(field: string): string {
    const value = this.#data[field];
    return formatMs(typeof value === 'number' ? value : null);
  }

  count(field: string): number {
    const value = this.#data[field];
    return typeof value === 'number' ? value : 0;
  }

  /** What the event is about: the model, else the process. */
  get who(): string {
    const model = this.text('model');
    return (model === '' ? '' : this.#names.model(model)) || shortGeneration(this.text('generation'));
  }

  get card(): string {
    return shortDevice(this.text('device'));
  }

  /** `, 24 of 36 layers`, or nothing. */
  get layers(): string {
    return this.count('layers') === 0 ? '' : `, ${String(this.count('layersOnCard'))} of ${String(this.count('layers'))} layers`;
  }

  /** ` (pid 4711 4712)`, or nothing. */
  get pids(): string {
    return this.text('pids') === '' ? '' : ` (pid ${this.text('pids')})`;
  }

  /** `figure` after a word; nothing where it says nothing, as on a CPU, or of a load that nobody timed. */
  after(word: string, figure: string, nothing: string, then = ''): string {
    return figure === nothing ? '' : `${word}${figure}${then}`;
  }

  /** ` (why)`, or nothing. */
  because(field: string): string {
    return this.text(field) === '' ? '' : ` (${this.text(field)})`;
  }
}

/** Ends that the broker wished for, with nothing wrong. */
const routineEnds: readonly string[] = ['idle', 'evicted', 'unawaited', 'shutdown'];

/** What was done with it, by the rung; a broker that does not say the rung is older. */
const leavings: Readonly<Record<string, string>> = { partial: 'gave back a part', park: 'parked', unload: 'unloaded', trim: 'dropped its copy' };

const lines: Readonly<Record<string, (facts: Facts) => Line>> = {
  loaded: (facts) => ['plain', `${facts.who} loaded on ${facts.card}${facts.layers}${facts.after(': ', facts.bytes('residentBytes'), '0')}${facts.after(' in ', facts.ms('loadMs'), '-')}`],
  granted: (facts) => (facts.count('grownBytes') === 0 ? null : ['plain', `${facts.who} has grown on ${facts.card} by ${facts.bytes('grownBytes')}, to ${facts.bytes('chargedBytes')} charged`]),
  evicted: (facts) => ['plain', `${facts.who} ${leavings[facts.text('rung')] ?? 'put away'}${facts.after(': ', facts.bytes('freedBytes'), '0', ` of ${facts.card} free again`)}${facts.because('reason')}`],
  eviction_failed: (facts) => ['warn', `${facts.who} could not be put away${facts.because('why')}`],
  leaving_slowly: (facts) => ['warn', facts.text('why')],
  // Whoever asked places it there next, unless it is bound to its card: what comes of that has a line of its own.
  denied: (facts) => (facts.text('elsewhere') !== '' ? ['plain', facts.text('why')] : ['warn', `${facts.who} denied, ${facts.text('code')}: ${facts.text('why')}`]),
  waiting: (facts) => (facts.text('reason') === 'no_victims' ? ['warn', `${facts.who} waits: ${facts.text('why')}`] : null),
  process_ended: (facts) => ended(facts),
  // A worker without its connection is ended, which is told with how.
  process_suspect: (facts) => (/-w\d+$/.test(facts.text('generation')) ? null : ['warn', `process ${facts.who} is silent${facts.because('why')}`]),
  quarantined: (facts) => ['bad', `${facts.bytes('bytes')} of ${facts.who} on ${facts.card} are quarantined: ${facts.text('why')}`],
  overshoot: (facts) => ['warn', facts.text('where') === 'host'
    ? `${facts.who} has ${facts.bytes('bytes')} in host memory that ${facts.card} had no room for: it is slow there`
    : `${facts.who} holds more than was granted on ${facts.card}: ${facts.bytes('bytes')}`],
  host_growth: (facts) => ['warn', `${facts.who} has ${facts.bytes('bytes')} more of the machine's memory than was granted: it is asked to give that back`],
  residue: (facts) => ['warn', `${facts.bytes('bytes')} of ${facts.who} are still on ${facts.card} after it was put away`],
  backing_off: (facts) => ['warn', `${facts.who} failed, ${String(facts.count('failures'))} in a row; next try in ${facts.ms('retryAfterMs')}: ${facts.text('reason')}`],
  process_recorded: (facts) => ['plain', `${facts.text('role')} ${shortGeneration(facts.text('generation'))} of an earlier broker lives on${facts.because('engine')}`],
  process_reattached: (facts) => ['plain', `${facts.text('role')} ${shortGeneration(facts.text('generation'))} is back, with ${formatCount(facts.count('leases'), 'lease')}`],
  card_closed: (facts) => ['warn', `nothing is granted on ${facts.card} until ${shortGeneration(facts.text('generation'))} has said what it holds there, or is gone`],
  card_opened: (facts) => ['plain', `${facts.card} is granted again; it was closed for ${facts.ms('closedMs')}`],
  misplaced: (facts) => ['warn', `${facts.bytes('bytes')} of ${facts.who} are on ${facts.card}, where nothing was granted to it`],
  card_lost: (facts) => ['bad', `${facts.card} is gone: ${facts.text('reason')}; what was there stays charged`],
  card_regained: (facts) => ['plain', `${facts.card} is back after ${facts.ms('lostMs')}`],
  thrashing: (facts) => ['warn', `${facts.card} thrashes: ${percent(facts.count('shareOfTime'))} of the last ${facts.ms('windowMs')} went into loading again what had been put away for each other: ${facts.text('models')}${lacking(facts)}`],
  thrash_ended: (facts) => ['plain', `${facts.card} thrashes no longer; it did for ${facts.ms('thrashedMs')}`],
  loop_blocked: (facts) => ['warn', `${loopOwner(facts)} was blocked for ${facts.ms('blockedMs')}${facts.count('times') > 1 ? `, the longest of ${formatCount(facts.count('times'), 'time')}` : ''}`],
  state_restored: (facts) => ['warn', `the ${facts.text('what')} at ${facts.text('path')} was gone and has been put back`],
  state_lost: (facts) => ['bad', `the ${facts.text('what')} at ${facts.text('path')} cannot be put back: ${facts.text('reason')}`],
  sample_lost: (facts) => ['bad', `${facts.card} cannot be read: ${facts.text('reason')}`],
  sample_regained: (facts) => ['plain', `${facts.card} is read again after ${facts.ms('missingMs')}`],
  yielded: (facts) => ['warn', `${facts.card} gives way to other programs, which have ${facts.bytes('strangersBytes')} of it${facts.pids}: ${facts.bytes('shortBytes')} more are made free for them`],
  foreign_changed: (facts) => ['plain', `other programs use ${facts.bytes('foreignBytes')} of ${facts.card}; it was ${facts.bytes('beforeBytes')}`],
};

const percent = (share: number): string => `${(share * 100).toFixed(0)} %`;

/** Whose loop: `worker w1's loop`. */
function loopOwner(facts: Facts): string {
  return facts.text('role') === 'broker' ? 'the broker\'s own loop' : `${facts.text('role')} ${shortGeneration(facts.text('generation'))}'s loop`;
}

function lacking(facts: Facts): string {
  const bytes = facts.count('neededBytes') - facts.count('capacityBytes');
  return bytes > 0 ? `; ${formatBytes(bytes)} are lacking for all of them to stay (leasehold ps says what can be done)` : '';
}

function ended(facts: Facts): Line {
  // Its connection ends with it, and is seen first.
  const cause = facts.text('cause') === 'session_lost' ? '' : facts.text('cause');
  if (routineEnds.includes(cause)) return null;
  const models = facts.text('models');
  // One that came and went without holding anything, such as the program of an embedder, is no news.
  if (cause === '' && models === '') return null;
  const how = cause === '' ? `ended by itself (${facts.text('how')})` : `was ended: ${cause.replaceAll('_', ' ')} (${facts.text('how')})`;
  return [cause === '' ? 'bad' : 'warn', `process ${facts.who} ${how}${models === '' ? '' : `, and with it ${models}`}`];
}

/** Columns of the time before the words. */
export const storyTextBegins = 10;

/** `14:03:59  tiny-facts loaded on SIM-1: 9.4 MiB in 55 ms`; null for what need not be told. */
export function storyLine(event: LeaseholdEvent, names: Names, palette: Palette, at: Date): string | null {
  const line = lines[event.name]?.(new Facts(event.data, names)) ?? null;
  if (line === null) return null;
  const [tone, text] = line;
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
  const paint = tone === 'bad' ? palette.red : tone === 'warn' ? palette.yellow : (plain: string) => plain;
  return `${palette.dim(time)}  ${paint(plainLine(names.inText(text)))}`;
}
