/** What a check finds: a verdict, what was seen with its numbers, and for anything that is not well a sentence of what to do. */

export const verdicts = ['ok', 'warning', 'problem', 'not_applicable'] as const;
export type Verdict = (typeof verdicts)[number];

/** What one check says of one thing. */
export interface Found {
  readonly verdict: Verdict;
  /** Numbers carry their units. */
  readonly found: string;
  /** What to do; null where nothing has to be done. */
  readonly advice: string | null;
  /** Which of several things this is about; added to the check's id: `cards.GPU-…`. */
  readonly about?: string;
  /** In place of the check's title. */
  readonly title?: string;
}

/** A finding as it is told. */
export interface Finding {
  readonly id: string;
  readonly title: string;
  readonly verdict: Verdict;
  readonly found: string;
  readonly advice: string | null;
}

/** All of it. `verdict` is the worst of all checks. */
export interface Diagnosis {
  readonly checks: readonly Finding[];
  readonly verdict: Exclude<Verdict, 'not_applicable'>;
}

export const ok = (found: string): Found => ({ verdict: 'ok', found, advice: null });
export const warning = (found: string, advice: string): Found => ({ verdict: 'warning', found, advice });
export const problem = (found: string, advice: string): Found => ({ verdict: 'problem', found, advice });
export const notApplicable = (found: string): Found => ({ verdict: 'not_applicable', found, advice: null });

/** One thing that is not well about something. */
export interface Fault {
  readonly verdict: 'warning' | 'problem';
  /** Added to what was found; empty: what was found says it already. */
  readonly says: string;
  readonly advice: string;
}

/** What was found, judged by the worst of its faults; without any it is well. */
export function assess(found: string, faults: readonly (Fault | null)[]): Found {
  const present = faults.filter((fault) => fault !== null);
  if (present.length === 0) return ok(found);
  const says = present.map((fault) => fault.says).filter((text) => text !== '');
  return {
    verdict: present.some((fault) => fault.verdict === 'problem') ? 'problem' : 'warning',
    found: [found, ...says].filter((text) => text !== '').join('; '),
    advice: [...new Set(present.map((fault) => fault.advice))].join(' '),
  };
}

/** The worst of all findings; nothing that applies is well. */
export function diagnose(checks: readonly Finding[]): Diagnosis {
  const has = (verdict: Verdict): boolean => checks.some((finding) => finding.verdict === verdict);
  return { checks, verdict: has('problem') ? 'problem' : has('warning') ? 'warning' : 'ok' };
}
