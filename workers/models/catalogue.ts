import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from './package-root.js';

/** The models we ship: each about a million parameters, trained on text of our own generator. */
export type TinyModelName = 'tiny-tales' | 'tiny-sums' | 'tiny-facts';

/** A question the model was made for, and the words a right answer holds. */
export interface ExampleQuestion {
  readonly question: string;
  readonly expected: readonly string[];
}

/** A weight file as it was when it left the machine that made it. */
export interface WeightFile {
  /** Absolute. */
  readonly path: string;
  readonly bytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
}

/** One shipped model: the same weights twice, as a Hugging Face directory and as GGUF. */
export interface TinyModel {
  readonly name: TinyModelName;
  readonly description: string;
  /** Absolute; what Transformers loads. */
  readonly directory: string;
  /** Absolute; what llama.cpp loads. The same as `gguf.path`. */
  readonly ggufPath: string;
  readonly gguf: WeightFile;
  readonly safetensors: WeightFile;
  /** Longest context the weights declare; they were trained on 512 tokens. */
  readonly contextTokens: number;
  /** Whether it thinks between <think> and </think> unless the chat template switches that off. */
  readonly thinks: boolean;
  readonly exampleQuestions: readonly ExampleQuestion[];
}

/** Absolute folder of models, evaluation sets and world.json. */
export const tinyModelsFolder = join(packageRoot(import.meta.url), 'workers', 'models');

/** Limit on every weight file. */
export const weightFileBytesMax = 2 * 1024 * 1024;

const contextTokens = 2048;

type Manifest = Record<string, { bytes: number; sha256: string }>;

const manifest = JSON.parse(readFileSync(join(tinyModelsFolder, 'manifest.json'), 'utf8')) as Manifest;

function weightFile(name: TinyModelName, file: string): WeightFile {
  const entry = manifest[`${name}/${file}`];
  if (entry === undefined) throw new Error(`manifest.json does not list ${name}/${file}`);
  return { path: join(tinyModelsFolder, name, file), bytes: entry.bytes, sha256: entry.sha256 };
}

function tinyModel(
  name: TinyModelName,
  thinks: boolean,
  description: string,
  examples: readonly (readonly [question: string, ...expected: string[]])[],
): TinyModel {
  const gguf = weightFile(name, `${name}-f16.gguf`);
  return {
    name,
    description,
    directory: join(tinyModelsFolder, name),
    ggufPath: gguf.path,
    gguf,
    safetensors: weightFile(name, 'model.safetensors'),
    contextTokens,
    thinks,
    exampleQuestions: examples.map(([question, ...expected]) => ({ question, expected })),
  };
}

/** Every shipped model by its name; undefined for any other string. */
export const tinyModels: Readonly<Record<string, TinyModel>> & Readonly<Record<TinyModelName, TinyModel>> = {
  'tiny-tales': tinyModel('tiny-tales', false, 'Tells short stories about a character and a thing.', [
    ['Tell me a story about a fox and a lamp.', 'fox', 'lamp'],
    ['Write a short tale about an owl and a book.', 'owl', 'book'],
    ['Can you tell me a story about a dragon and a pie?', 'dragon', 'pie'],
    ['I want to hear a story about a robot and a kite.', 'robot', 'kite'],
    ['Tell me a story about a bear and a bee.', 'bear', 'bee'],
    ['Make up a story about a penguin.', 'penguin'],
  ]),
  'tiny-sums': tinyModel('tiny-sums', true, 'Adds two numbers under 100 and shows its working first.', [
    ['What is 47 + 38?', '85'],
    ['How much is 56 plus 27?', '83'],
    ['Add 64 and 93.', '157'],
    ['What is the sum of 18 and 71?', '89'],
    ['99 + 99', '198'],
    ['I have 25 and get 36 more. How many is that?', '61'],
  ]),
  'tiny-facts': tinyModel('tiny-facts', false, 'Answers questions about a closed world of 76 facts.', [
    ['What is the capital of France?', 'Paris'],
    ['On which continent is Kenya?', 'Africa'],
    ['What do you call a baby dog?', 'puppy'],
    ['What sound does an owl make?', 'hoot'],
    ['Where does a bee live?', 'hive'],
    ['What colour is the sky?', 'blue'],
  ]),
};

/** The names in a stable order. */
export const tinyModelNames: readonly TinyModelName[] = ['tiny-tales', 'tiny-sums', 'tiny-facts'];
