/** The stages of a call as its caller is told of them: with the names that people know, and no more of them than say something. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Stage } from './types.js';

/** A step of progress that is worth telling: one load makes at most some twenty of them. */
const progressStep = 0.05;

/** Passes on what is new: another stage, another text, or progress by a step. `named` puts names for keys. A listener that throws loses its call: `input_invalid`. */
export function sparing(onStage: (stage: Stage) => void, named: (text: string) => string): (stage: Stage) => void {
  let last: Stage | null = null;
  return (stage) => {
    if (last !== null && !isNew(stage, last)) return;
    last = stage;
    try {
      onStage({ ...stage, text: named(stage.text) });
    } catch (error) {
      throw LeaseholdError.from(error, 'input_invalid', { field: 'onStage' });
    }
  };
}

function isNew(stage: Stage, last: Stage): boolean {
  if (stage.stage !== last.stage || stage.explain !== last.explain) return true;
  if (stage.progress === null || last.progress === null) return stage.text !== last.text || stage.progress !== last.progress;
  const moved = Math.abs(stage.progress - last.progress);
  // Figures in a text move with the progress; its words do not.
  return moved >= progressStep || (stage.progress === 1 && moved > 0) || wordsOf(stage.text) !== wordsOf(last.text);
}

function wordsOf(text: string): string {
  return text.replace(/[\d.,]+/g, '#');
}
