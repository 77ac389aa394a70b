/** The demo's figures, and which of its promises they break. Everything is read or counted; nothing is assumed. */
import type { LedgerState } from '../../orchestrator/types.js';

export interface DemoResult {
  readonly requests: number;
  readonly answered: number;
  readonly answersRight: number;
  readonly grants: number;
  readonly evictions: number;
  readonly denied: number;
  /** What the card held at its fullest beyond its size, as the card itself read. */
  readonly overcommittedBytes: number;
  /** Allocations the card had to refuse. */
  readonly oomRefusals: number;
  /** Largest ever of charges + holds - (total - reserve). */
  readonly maxOverReserveBytes: number;
  readonly deviceBytes: number;
  readonly peakUsedBytes: number;
  /** Largest ever of charges + holds. */
  readonly peakChargedBytes: number;
}

export interface Answers {
  readonly requests: number;
  readonly answered: number;
  readonly right: number;
}

const requestsMin = 9;
const evictionsMin = 6;
/** The models are right on at least 95 of 100 questions they have never seen, and these they have: a little slack for other processors. */
const rightShareMin = 0.9;

/** Reads the figures from the last ledger; a figure that is not there is an error, not a zero. */
export function toResult(state: LedgerState, answers: Answers): DemoResult {
  const [card] = state.cards;
  const [reading] = state.simulatedCards;
  if (card === undefined || reading === undefined || reading.device !== card.device) throw new Error('the simulated card is not in the ledger');
  const counter = (name: string, otherwise?: number): number => {
    const value = state.counters[name] ?? otherwise;
    if (value === undefined) throw new Error(`the ledger has no counter ${name}`);
    return value;
  };
  const maxOverReserveBytes = counter('maxOverReserveBytes');
  return {
    requests: answers.requests,
    answered: answers.answered,
    answersRight: answers.right,
    grants: counter('grants'),
    evictions: counter('evictions', 0),
    denied: counter('denials', 0),
    overcommittedBytes: Math.max(0, reading.peakUsedBytes - reading.totalBytes),
    oomRefusals: reading.oomRefusals,
    maxOverReserveBytes,
    deviceBytes: reading.totalBytes,
    peakUsedBytes: reading.peakUsedBytes,
    peakChargedBytes: maxOverReserveBytes + card.totalBytes - card.reserveBytes,
  };
}

export interface Pledge {
  readonly text: string;
  readonly kept: boolean;
}

/** Every promise of the demo as a sentence, and whether it was kept. */
export function promises(result: DemoResult): readonly Pledge[] {
  return [
    { text: `at least ${requestsMin} requests, and every one was answered`, kept: result.requests >= requestsMin && result.answered === result.requests },
    { text: 'the answers are right', kept: result.answersRight >= rightShareMin * result.answered },
    { text: `at least ${evictionsMin} times a model made room for another`, kept: result.evictions >= evictionsMin },
    { text: 'nobody was denied', kept: result.denied === 0 },
    { text: 'the card never held more than it has, and never had to refuse', kept: result.overcommittedBytes === 0 && result.oomRefusals === 0 },
    { text: 'the ledger never promised more than it may', kept: result.maxOverReserveBytes <= 0 },
    { text: 'the models were really on the card', kept: result.peakUsedBytes > 0 && result.grants > result.evictions },
  ];
}
