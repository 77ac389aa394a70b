/**
 * Measures the tiny models through llama.cpp on questions training never saw:
 *
 *     npm run -s models:evaluate -- [--json]
 *
 * Prints how many answers are right (with --json one line of JSON, else also the wrong ones) and exits with
 * 1 if any set is under 95 %. Every answer is greedy; an answer that did not end by itself is wrong.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Llama } from 'node-llama-cpp';
import { checkAnswer, tinyModels, tinyModelsFolder, type TinyModelName } from './index.js';
import { openEngine, openGreedyModel } from './greedy.js';

const rightShareMin = 0.95;

/** One evaluation: a set of questions, put to one model, with thinking on or off. */
interface Trial {
  readonly model: TinyModelName;
  readonly set: 'sums' | 'facts' | 'tales';
  readonly thinking: boolean;
}

/** `sums` and `facts` are the promise; the rest says that thinking off and free stories hold up too. */
const trials: Readonly<Record<string, Trial>> = {
  sums: { model: 'tiny-sums', set: 'sums', thinking: true },
  facts: { model: 'tiny-facts', set: 'facts', thinking: true },
  tales: { model: 'tiny-tales', set: 'tales', thinking: true },
  sumsThinkingOff: { model: 'tiny-sums', set: 'sums', thinking: false },
  factsThinkingOff: { model: 'tiny-facts', set: 'facts', thinking: false },
};

/** `names`, in tales alone: the two the story is about. */
interface Item {
  readonly question: string;
  readonly names?: readonly string[];
}

interface Outcome {
  readonly right: number;
  readonly of: number;
  readonly wrong: readonly { question: string; answer: string }[];
}

function itemsOf(set: Trial['set']): Item[] {
  return JSON.parse(readFileSync(join(tinyModelsFolder, 'evaluation', `${set}.json`), 'utf8')) as Item[];
}

/** A story that forgets who it is about names somebody else, or not both. */
function namesAreRight(item: Item, items: readonly Item[], text: string): boolean {
  const said = new Set(text.match(/\p{L}+/gu));
  return items.flatMap((other) => other.names ?? []).every((name) => said.has(name) === item.names?.includes(name));
}

async function run(llama: Llama, trial: Trial): Promise<Outcome> {
  const items = itemsOf(trial.set);
  const model = await openGreedyModel(llama, tinyModels[trial.model]);
  const wrong: { question: string; answer: string }[] = [];
  for (const item of items) {
    const { text, endedByItself } = await model.ask(item.question, trial.thinking);
    const right = endedByItself && checkAnswer(trial.model, item.question, text) && namesAreRight(item, items, text);
    if (!right) wrong.push({ question: item.question, answer: text });
  }
  await model.dispose();
  return { right: items.length - wrong.length, of: items.length, wrong };
}

async function main(json: boolean): Promise<number> {
  const llama = await openEngine();
  const counts: Record<string, { right: number; of: number }> = {};
  let passed = true;
  for (const [name, trial] of Object.entries(trials)) {
    const { right, of, wrong } = await run(llama, trial);
    counts[name] = { right, of };
    passed &&= right >= rightShareMin * of;
    if (json) continue;
    console.log(`${name}: ${right} of ${of} right`);
    for (const { question, answer } of wrong) console.log(`  wrong: ${question} -> ${JSON.stringify(answer)}`);
  }
  if (json) console.log(JSON.stringify(counts));
  await llama.dispose();
  return passed ? 0 : 1;
}

process.exitCode = await main(process.argv.includes('--json'));
