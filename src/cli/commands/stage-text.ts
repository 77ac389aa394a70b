/** A stage of a call in a few words. */
import type { Stage } from '../../orchestrator/types.js';
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
const repeated = /^(finding a worker$|waiting for room on \S+?(: *|$)|waiting for a worker: *)/i;

/** `waiting for room for tiny-facts: 2 before it; tiny-sums is being put away` */
export function describeStage(model: string, { stage, text }: Stage, names: Names): string {
  const reason = withReason.includes(stage) ? names.inText(text.trim().replace(repeated, '')).replace(/\bw\d+ is starting$/, 'its worker is starting') : '';
  return `${words[stage]} ${model}${reason === '' ? '' : `: ${reason}`}`;
}
