/** A stage of a call in a few words. */
import type { Stage } from '../../orchestrator/types.js';
import { formatOrdinal } from '../terminal/size-format.js';
import type { Names } from '../views/names.js';

const words: Readonly<Record<Stage['stage'], string>> = {
  placing: 'finding a worker for',
  queued: 'waiting for a turn with',
  estimating: 'working out the size of',
  waiting: 'waiting for room for',
  loading: 'loading',
  resuming: 'bringing back',
  prefill: 'reading the question with',
  generating: 'answering with',
};

/** Stages that last for a reason; the text of the others only repeats their name. */
const withReason: readonly Stage['stage'][] = ['placing', 'queued', 'waiting', 'resuming'];
const repeated = /^(finding a worker$|waiting for room on \S+$|waiting for a worker, *)/i;

/** `place 2 for SIM-1: it is full` as a person says it; who is first in the queue need not be told of one. */
function inPlainWords(reason: string): string {
  return reason
    .replace(/^place (\d+)(?: for \S+?)?: */, (_, place: string) => (place === '1' ? '' : `${formatOrdinal(Number(place))} in the queue; `))
    .replace(/\bw\d+ is starting$/, 'its worker is starting');
}

/** `waiting for room for tiny-facts: 2nd in the queue; tiny-sums is being put away` */
export function describeStage(model: string, { stage, text }: Stage, names: Names): string {
  const reason = withReason.includes(stage) ? inPlainWords(names.inText(text.trim().replace(repeated, ''))) : '';
  return `${words[stage]} ${model}${reason === '' ? '' : `: ${reason}`}`;
}
