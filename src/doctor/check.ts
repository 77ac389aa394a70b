/** A check: one question about this machine. A new one is an object of this shape in a file of `checks/`, listed in all-checks.ts. */
import type { Found } from './finding.js';
import type { Scene } from './scene.js';

export interface Check {
  /** `<group>.<name>`: a name of the group alone where a check makes it up by itself. Never changes its meaning. */
  readonly id: string;
  /** For people; a few words. */
  readonly title: string;
  /** Past this it is a finding that it did not answer. Default 15 s. */
  readonly deadlineMs?: number;
  /** It measures time or fills the machine: nothing else runs beside it, and it comes last. */
  readonly alone?: boolean;
  /** It starts an engine: left out with --no-engines. */
  readonly startsEngine?: boolean;
  /** Looks, and changes nothing that stays. What it throws is a finding. At the deadline `signal` aborts. */
  run(scene: Scene, signal: AbortSignal): Promise<Found | readonly Found[]>;
}

export const checkDeadlineMs = 15_000;

/** The first word of a check's or a finding's id. */
export function groupOf(id: string): string {
  return id.split('.')[0] ?? id;
}

/** Groups in the order in which they are told, with their names for people. */
export const groups: ReadonlyMap<string, string> = new Map([
  ['program', 'Program'],
  ['state', 'State folder'],
  ['broker', 'Running broker'],
  ['rungs', 'Ways to read cards'],
  ['cards', 'Cards'],
  ['masks', 'Visibility masks'],
  ['limits', 'Limits'],
  ['memory', 'Memory of the machine'],
  ['system', 'What the broker stands on'],
  ['configuration', 'Configuration'],
  ['engines', 'Engines'],
]);
