import { getLlama, type Llama, type LlamaContextSequence, type LlamaModel, type Token } from 'node-llama-cpp';
import { renderQuestion } from './chatml.js';
import type { TinyModel } from './catalogue.js';

/** Room for the longest story and its question, with as much again to spare. */
const contextTokens = 512;

/** What one greedy run gave. */
export interface GreedyResult {
  /** Generated ids, the end-of-sequence token included if it came. */
  readonly ids: readonly number[];
  /** The text a reader sees, the thought included. */
  readonly text: string;
  /** False when the run was cut at its limit. */
  readonly endedByItself: boolean;
}

/** One tiny model in llama.cpp, always taking the likeliest token. */
export interface GreedyModel {
  /** Ids of a text in which special tokens are written out. */
  tokenize(text: string): readonly number[];
  /** Answers a rendered prompt; calls must not overlap. */
  generate(prompt: string, newTokensMax?: number): Promise<GreedyResult>;
  /** Renders the question first. `thinking` defaults to true, as in the chat template. */
  ask(question: string, thinking?: boolean): Promise<GreedyResult>;
  dispose(): Promise<void>;
}

/** The engine on one CPU thread: for a million parameters a second thread costs more than it brings. */
export function openEngine(): Promise<Llama> {
  return getLlama({ gpu: false, build: 'never', skipDownload: true, maxThreads: 1, ramPadding: 0, progressLogs: false });
}

/** Loads a model; the caller disposes of it, and of the engine after its last model. */
export async function openGreedyModel(llama: Llama, tiny: TinyModel): Promise<GreedyModel> {
  const model = await llama.loadModel({ modelPath: tiny.ggufPath, gpuLayers: 0, ignoreMemorySafetyChecks: true });
  const context = await model.createContext({
    contextSize: contextTokens,
    batchSize: contextTokens,
    flashAttention: true,
    ignoreMemorySafetyChecks: true,
  });
  const sequence = context.getSequence();
  const generate = (prompt: string, newTokensMax = contextTokens / 2): Promise<GreedyResult> =>
    runGreedily(model, sequence, prompt, newTokensMax);
  return {
    tokenize: (text) => model.tokenize(text, true),
    generate,
    ask: (question, thinking = true) => generate(renderQuestion(question, thinking)),
    dispose: async () => {
      await context.dispose();
      await model.dispose();
    },
  };
}

async function runGreedily(
  model: LlamaModel,
  sequence: LlamaContextSequence,
  prompt: string,
  newTokensMax: number,
): Promise<GreedyResult> {
  await sequence.clearHistory();
  const ids: Token[] = [];
  let endedByItself = false;
  for await (const token of sequence.evaluate(model.tokenize(prompt, true), { temperature: 0, yieldEogToken: true })) {
    ids.push(token);
    endedByItself = model.isEogToken(token);
    if (endedByItself || ids.length >= newTokensMax) break;
  }
  return { ids, text: model.detokenize(ids, false), endedByItself };
}
