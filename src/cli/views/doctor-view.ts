/** Findings as lines: a mark, what was looked at, what was found, and below it what to do. */
import type { Diagnosis, Finding, Verdict } from '../../doctor/index.js';
import type { Palette } from '../terminal/colour.js';
import { formatCount } from '../terminal/size-format.js';
import { displayWidth, pad, withoutControls, wrap } from '../terminal/width.js';

const marks: Readonly<Record<Verdict, string>> = { ok: '✓', warning: '!', problem: '✗', not_applicable: '–' };
/** Columns of titles; a longer one has its own line. */
const titleColumns = 22;
const indent = '  ';
const advicePrefix = '→ ';
/** What is found stands below its title where there would be less room than this beside it. */
const textColumnsMin = 24;

export interface DoctorStyle {
  readonly columns: number;
  readonly palette: Palette;
}

export function renderFinding({ title, verdict, found, advice }: Finding, { columns, palette }: DoctorStyle): string[] {
  const paint = paints(palette)[verdict];
  const left = displayWidth(indent) + 2;
  const beside = columns - left - titleColumns - 2 >= textColumnsMin;
  const hanging = beside ? left + titleColumns + 2 : left;
  const wide = !beside || displayWidth(title) > titleColumns;
  const body = wrap(clean(found), columns - hanging);
  const rest = verdict === 'not_applicable' ? palette.dim : (text: string) => text;
  const head = `${indent}${paint(marks[verdict])} ${wide ? title : pad(title, titleColumns)}`;
  const lines = wide ? [head, ...body.map((line) => ' '.repeat(hanging) + rest(line))] : body.map((line, index) => (index === 0 ? `${head}  ${rest(line)}` : ' '.repeat(hanging) + rest(line)));
  const help = advice === null ? [] : wrap(clean(advice), columns - hanging - advicePrefix.length);
  return [...lines, ...help.map((line, index) => ' '.repeat(hanging) + paint(index === 0 ? advicePrefix + line : ' '.repeat(advicePrefix.length) + line))];
}

export function renderVerdict({ checks, verdict }: Diagnosis, tookText: string, { palette }: DoctorStyle): string {
  const count = (wanted: Verdict): number => checks.filter((finding) => finding.verdict === wanted).length;
  const said = verdict === 'ok' ? 'Nothing is wrong' : verdict === 'warning' ? `No problem, ${formatCount(count('warning'), 'warning')}` : `${formatCount(count('problem'), 'problem')}, ${formatCount(count('warning'), 'warning')}`;
  return `${paints(palette)[verdict](said)} ${palette.dim(`(${String(count('ok'))} well, ${String(count('not_applicable'))} not applicable; ${tookText})`)}`;
}

function paints(palette: Palette): Readonly<Record<Verdict, (text: string) => string>> {
  return { ok: palette.green, warning: palette.yellow, problem: palette.red, not_applicable: palette.dim };
}

/** Drivers and files say what they like. */
function clean(text: string): string {
  return withoutControls(text).replaceAll('\n', ' ');
}
