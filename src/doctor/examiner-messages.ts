/** What the examiner's process is told and says: its setup in one argument, then a line of JSON each on standard output. */
import type { Flags } from '../config/index.js';
import type { Finding } from './finding.js';

export interface ExaminerSetup {
  readonly flags: Flags;
  /** Ids of the checks to carry out. */
  readonly checks: readonly string[];
}

export type ExaminerMessage =
  | { readonly say: 'begun'; readonly id: string }
  | { readonly say: 'found'; readonly id: string; readonly findings: readonly Finding[] }
  /** Its loop turns. */
  | { readonly say: 'alive' }
  | { readonly say: 'done' };

export const aliveIntervalMs = 500;
