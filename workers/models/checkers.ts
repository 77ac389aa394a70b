import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tinyModelsFolder, type TinyModelName } from './catalogue.js';

/** A kind of fact: `cues` are words a question of this kind holds; the first relation that matches is meant. */
interface Relation {
  readonly relation: string;
  readonly cues: readonly string[];
  readonly facts: Readonly<Record<string, string>>;
}

let relations: readonly Relation[] | undefined;

function world(): readonly Relation[] {
  relations ??= JSON.parse(readFileSync(join(tinyModelsFolder, 'world.json'), 'utf8')) as Relation[];
  return relations;
}

/** What follows the thought; undefined when a thought was begun and never ended. */
function answerOnly(text: string): string | undefined {
  const end = text.lastIndexOf('</think>');
  if (end >= 0) return text.slice(end + '</think>'.length).trim();
  return text.includes('<think>') ? undefined : text.trim();
}

const numbersIn = (text: string): number[] => (text.match(/\d+/g) ?? []).map(Number);

/** Whether `text` holds `phrase` as words of their own, whatever the case: "says" is not "say". */
function names(text: string, phrase: string): boolean {
  return ` ${words(text).join(' ')} `.includes(` ${words(phrase).join(' ')} `);
}

/** Words in lower case; a possessive 's is no part of its word. */
function words(text: string): string[] {
  return text.toLowerCase().replace(/['’]s\b/g, ' ').match(/[\p{L}\p{N}-]+/gu) ?? [];
}

/** True if the last number after the thought is the sum of the question's two numbers; false for any other question. */
export function checkSum(question: string, answer: string): boolean {
  const [first, second, ...more] = numbersIn(question);
  if (first === undefined || second === undefined || more.length > 0) return false;
  return numbersIn(answerOnly(answer) ?? '').at(-1) === first + second;
}

/**
 * True if the answer holds the fact asked for and no other value of the same relation ("Paris or Rome" is
 * wrong). False for a question outside the world.
 */
export function checkFact(question: string, answer: string): boolean {
  const expected = expectedFact(question);
  const said = answerOnly(answer);
  if (expected === undefined || said === undefined || !names(said, expected.value)) return false;
  return Object.values(expected.relation.facts).every((value) => value === expected.value || !names(said, value));
}

/** The fact a question asks for, by its subject and the words that mark its relation. */
function expectedFact(question: string): { relation: Relation; value: string } | undefined {
  for (const relation of world()) {
    if (!relation.cues.some((cue) => names(question, cue))) continue;
    for (const [subject, value] of Object.entries(relation.facts)) {
      if (names(question, subject)) return { relation, value };
    }
  }
  return undefined;
}

/** The nouns of "... about a fox and an old lamp, please": fox, lamp. */
function nounsAskedFor(question: string): string[] {
  const asked = /\babout (?<things>[^.?!,]+)/i.exec(question)?.groups?.['things'] ?? '';
  return asked.split(/\band\b/i).flatMap((part) => words(part).slice(-1));
}

/**
 * True if the story names everything the question asks for, is at least three sentences long, says no
 * sentence twice and ends where a sentence ends. Whether the model stopped by itself only its caller knows.
 */
export function checkTale(question: string, answer: string): boolean {
  const told = answerOnly(answer) ?? '';
  const nouns = nounsAskedFor(question);
  const sentences = told.split(/(?<=[.!?]["”]?)\s+/);
  return (
    nouns.length > 0
    && nouns.every((noun) => names(told, noun))
    && sentences.length >= 3
    && new Set(sentences).size === sentences.length
    && /[.!?]["”]?$/.test(told)
  );
}

const checkers: Readonly<Record<TinyModelName, (question: string, answer: string) => boolean>> = {
  'tiny-tales': checkTale,
  'tiny-sums': checkSum,
  'tiny-facts': checkFact,
};

/** Judges an answer of the named model by the model's own checker. */
export function checkAnswer(model: TinyModelName, question: string, answer: string): boolean {
  return checkers[model](question, answer);
}
