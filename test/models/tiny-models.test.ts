// The shipped models are what they claim: small, the same weights in both formats, the same greedy ids in llama.cpp
// and Transformers, and right on questions training never saw (here a part; `npm run models:evaluate` asks them all).
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { GgmlType, readGgufFileInfo, type Llama } from 'node-llama-cpp';
import t from 'tap';
import { openEngine, openGreedyModel } from '../../workers/models/greedy.js';
import {
  checkAnswer,
  checkFact,
  checkSum,
  checkTale,
  renderQuestion,
  tinyModelNames,
  tinyModels,
  tinyModelsFolder,
  weightFileBytesMax,
  type TinyModelName,
} from '../../workers/models/index.js';

interface GreedyCase {
  readonly model: TinyModelName;
  readonly question: string;
  readonly thinking: boolean;
  readonly prompt: string;
  readonly promptIds: readonly number[];
  readonly generatedIds: readonly number[];
}

interface EvaluationItem {
  readonly question: string;
  readonly expected: string;
}

const evaluationSet = <Item>(name: string): Item[] =>
  JSON.parse(readFileSync(join(tinyModelsFolder, 'evaluation', `${name}.json`), 'utf8')) as Item[];

/** The first entry says what made the fixture. */
const greedyCases = evaluationSet<GreedyCase>('greedy-ids').slice(1);

t.test('weight files are at most 2 MiB and are the ones the manifest names', async (t) => {
  for (const name of tinyModelNames) {
    for (const file of [tinyModels[name].gguf, tinyModels[name].safetensors]) {
      const content = readFileSync(file.path);
      t.ok(content.byteLength <= weightFileBytesMax, `${file.path} has ${content.byteLength} bytes`);
      t.equal(content.byteLength, file.bytes);
      t.equal(createHash('sha256').update(content).digest('hex'), file.sha256);
    }
  }
});

t.test('safetensors and GGUF hold the same weights', async (t) => {
  for (const name of tinyModelNames) {
    const fromSafetensors = readSafetensors(tinyModels[name].safetensors.path);
    const fromGguf = await readGguf(tinyModels[name].ggufPath);
    t.same([...fromGguf.keys()].sort(), [...fromSafetensors.keys()].map(ggufName).sort());
    const different = [...fromSafetensors].filter(([tensor, values]) => !sameValues(values, fromGguf.get(ggufName(tensor)) ?? []));
    t.same(different.map(([tensor]) => tensor), [], `${name}: every tensor is equal`);
  }
});

t.test('the directory holds the chat template that the GGUF holds', async (t) => {
  for (const name of tinyModelNames) {
    const template = readFileSync(join(tinyModels[name].directory, 'chat_template.jinja'), 'utf8');
    const config = JSON.parse(readFileSync(join(tinyModels[name].directory, 'tokenizer_config.json'), 'utf8')) as { chat_template: string };
    const { metadata } = await readGgufFileInfo(tinyModels[name].ggufPath, { readTensorInfo: false, logWarnings: false });
    t.equal(config.chat_template, template);
    t.equal(metadata.tokenizer.chat_template, template);
  }
});

t.test('checkers accept right answers and refuse wrong ones', async (t) => {
  t.ok(checkSum('What is 47 + 38?', '<think>\nOnes: 15.\n</think>\n\n47 + 38 is 85.'));
  t.notOk(checkSum('What is 47 + 38?', '47 + 38 is 84.'));
  t.notOk(checkSum('What is 47 + 38?', '<think>\nSo 85'), 'a thought is no answer');
  t.notOk(checkSum('What is the capital of France?', '85'), 'not a sum');
  t.ok(checkFact("What is France's capital?", 'The capital of France is Paris.'));
  t.notOk(checkFact('What is the capital of France?', 'Paris or Rome.'), 'two answers are none');
  t.notOk(checkFact('What is the capital of France?', 'Europe'), 'an answer to another question');
  t.notOk(checkFact('What is the capital of Atlantis?', 'Paris.'), 'outside the world');
  t.ok(checkTale('A story about a fox and an old lamp, please.', 'A fox sat. It found a lamp. The end.'));
  t.notOk(checkTale('Tell me a story about a fox and a lamp.', 'A fox sat. It slept. The end.'), 'no lamp');
  t.notOk(checkTale('Tell me a story about a fox.', 'A fox sat. It ran. It ran. The end.'), 'a sentence twice');
  t.notOk(checkTale('Tell me a story about a fox.', 'A fox sat. It ran. Then it'), 'cut off');
  for (const { question, expected } of evaluationSet<EvaluationItem>('facts')) {
    if (!checkFact(question, expected)) t.fail(`the checker reads another fact in ${question}`);
  }
});

t.test('in llama.cpp', async (t) => {
  const llama = await openEngine();
  t.teardown(() => llama.dispose());

  await t.test('prompt ids and greedy ids are those of Transformers in float32', async (t) => {
    t.equal(greedyCases.length, 20);
    await withEach(llama, async (name, model) => {
      for (const { question, thinking, prompt, promptIds, generatedIds } of greedyCases.filter((one) => one.model === name)) {
        t.equal(renderQuestion(question, thinking), prompt, `prompt of ${question}`);
        t.same(model.tokenize(prompt), promptIds, `prompt ids of ${question}`);
        t.same((await model.generate(prompt)).ids, generatedIds, `greedy ids of ${question}`);
      }
    });
  });

  await t.test('every tiny model is right on at least 95 % of the first held-out questions and on every example', async (t) => {
    await withEach(llama, async (name, model) => {
      const questions = evaluationSet<EvaluationItem>(name.replace('tiny-', '')).slice(0, name === 'tiny-tales' ? 10 : 40).map((item) => item.question);
      const examples = tinyModels[name].exampleQuestions.map((example) => example.question);
      const wrong: string[] = [];
      for (const question of [...questions, ...examples]) {
        const { text, endedByItself } = await model.ask(question);
        if (!endedByItself || !checkAnswer(name, question, text)) wrong.push(question);
      }
      t.ok(wrong.length <= 0.05 * questions.length, `${name}: wrong on ${JSON.stringify(wrong)}`);
      t.same(wrong.filter((question) => examples.includes(question)), [], `${name}: examples`);
    });
  });

  await t.test('tiny-sums thinks first, and answers at once when thinking is switched off', async (t) => {
    const model = await openGreedyModel(llama, tinyModels['tiny-sums']);
    const thoughtful = await model.ask('What is 47 + 38?');
    const direct = await model.ask('What is 47 + 38?', false);
    await model.dispose();
    t.match(thoughtful.text, /^<think>\n.*carry 1.*\n<\/think>\n\n.*85\.$/s);
    t.equal(direct.text, '47 + 38 is 85.');
  });
});

type OpenModel = Awaited<ReturnType<typeof openGreedyModel>>;

async function withEach(llama: Llama, use: (name: TinyModelName, model: OpenModel) => Promise<void>): Promise<void> {
  for (const name of tinyModelNames) {
    const model = await openGreedyModel(llama, tinyModels[name]);
    await use(name, model);
    await model.dispose();
  }
}

/** Tensor values by name; bfloat16 is the upper half of a float32. */
function readSafetensors(path: string): Map<string, number[]> {
  const file = readFileSync(path);
  const dataStart = 8 + Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, dataStart)) as Record<string, { dtype?: string; data_offsets: [number, number] }>;
  const tensors = new Map<string, number[]>();
  for (const [name, { dtype, data_offsets: offsets }] of Object.entries(header)) {
    if (dtype === undefined) continue;
    const bytes = file.subarray(dataStart + offsets[0], dataStart + offsets[1]);
    const word = new DataView(new ArrayBuffer(4));
    tensors.set(name, Array.from({ length: bytes.length / 2 }, (_, index) => {
      word.setUint16(0, bytes.readUInt16LE(2 * index));
      return word.getFloat32(0);
    }));
  }
  return tensors;
}

async function readGguf(path: string): Promise<Map<string, number[]>> {
  const file = readFileSync(path);
  const { fullTensorInfo } = await readGgufFileInfo(path, { logWarnings: false });
  const tensors = new Map<string, number[]>();
  for (const { name, dimensions, ggmlType, fileOffset } of fullTensorInfo ?? []) {
    const length = dimensions.reduce<number>((product, dimension) => product * Number(dimension), 1);
    const at = Number(fileOffset);
    // Norms are F32, matrices F16.
    const read = ggmlType === GgmlType.F32 ? (index: number) => file.readFloatLE(at + 4 * index) : (index: number) => float16(file.readUInt16LE(at + 2 * index));
    tensors.set(name, Array.from({ length }, (_, index) => read(index)));
  }
  return tensors;
}

function float16(bits: number): number {
  const sign = bits >> 15 === 0 ? 1 : -1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

const layerTensors: Readonly<Record<string, string>> = {
  'input_layernorm': 'attn_norm',
  'post_attention_layernorm': 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
};

function ggufName(tensor: string): string {
  if (tensor === 'model.embed_tokens.weight') return 'token_embd.weight';
  if (tensor === 'model.norm.weight') return 'output_norm.weight';
  const [, layer = '', part = ''] = /^model\.layers\.(\d+)\.(.+)\.weight$/.exec(tensor) ?? [];
  return `blk.${layer}.${layerTensors[part] ?? part}.weight`;
}

const sameValues = (left: readonly number[], right: readonly number[]): boolean =>
  left.length === right.length && left.every((value, index) => value === right[index]);
