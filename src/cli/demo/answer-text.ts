/** A turn of the conversation as lines: who is asked, what, what comes back, how it went. */
import type { Palette } from '../terminal/colour.js';
import { formatCount, formatMs } from '../terminal/size-format.js';
import { pad, truncate, withoutControls, wrap } from '../terminal/width.js';
import type { Turn } from './script.js';
import type { Outcome } from './view.js';

/** What of a turn is known so far. */
export interface Said {
  readonly turn: Turn;
  thought: string;
  text: string;
  /** What it waits for or does; null once words come. */
  status: string | null;
}

const indent = 4;

export function renderQuestion({ number, model, question }: Turn, index: number, columns: number, palette: Palette): string[] {
  const head = `${pad(String(number), 2, 'right')}  `;
  const name = pad(model, 12);
  const lines = wrap(question, columns - indent - name.length);
  return lines.map((line, row) => (row === 0 ? `${palette.dim(head)}${palette.as('model', index)(palette.bold(name))}${line}` : ' '.repeat(indent + name.length) + line));
}

/** Thought in grey before the answer, the status while neither has come. */
export function renderAnswer(said: Said, columns: number, palette: Palette): string[] {
  const room = columns - indent;
  const thought = withoutControls(said.thought).trim();
  const text = withoutControls(said.text).trim();
  const lines = [
    ...(thought === '' ? [] : wrap(thought.replaceAll('\n', ' '), room).map(palette.dim)),
    ...(text === '' ? [] : wrap(text, room)),
    ...(said.status === null ? [] : [palette.dim(truncate(said.status, room))]),
  ];
  return lines.map((line) => ' '.repeat(indent) + line);
}

export function renderOutcome({ result, failure, right, tookMs }: Outcome, columns: number, palette: Palette): string {
  // Nobody but the user ends a question of the demo.
  if (failure?.code === 'request_cancelled') return ' '.repeat(indent) + palette.dim('stopped');
  if (result === null) return ' '.repeat(indent) + palette.red(truncate(`✗ ${failure?.code ?? ''}: ${failure?.message ?? ''}`, columns - indent));
  const { timings, usage } = result;
  const facts = [
    right ? palette.green('✓ right') : palette.red('✗ wrong'),
    ...[
      timings.loadMs > 0 ? `loaded in ${formatMs(timings.loadMs)}` : 'was resident',
      formatCount(usage.completionTokens, 'token'),
      `${formatMs(tookMs)} in all`,
    ].map(palette.dim),
  ];
  return ' '.repeat(indent) + facts.join(palette.dim(' · '));
}
