/** One generation on one sequence: prompt piece by piece, then token by token, stopping wherever it is told to. */
import type { LlamaContextSequence, SequenceEvaluateOptions, Token } from 'node-llama-cpp';
import { LeaseholdError } from '../../protocol/index.js';
import type { GenerateCall, GenerateEvent } from '../runtime/engine.js';
import { Output } from './output.js';
import { commonPrefix, piecesOf, reusableTokens, type Piece } from './prefill.js';
import { penaltyTokens, samplerOptions, stopStrings } from './sampling.js';
import type { Vocabulary } from './vocabulary.js';

/** A sequence and what is known about the tokens in it. */
export interface History {
  readonly sequence: LlamaContextSequence;
  readonly contextTokens: number;
  readonly pieceTokens: number;
  /** Leading tokens that were evaluated in whole pieces. */
  exactTokens: number;
  /** Told before a call of the most tokens that it evaluates at once; what comes of it is told when they are. */
  readonly beginCompute: (tokens: number) => Promise<() => void>;
}

export interface Prepared {
  readonly prompt: readonly Token[];
  readonly stops: readonly string[];
}

/** Everything that can be refused before a token is evaluated. */
export async function prepare(vocabulary: Vocabulary, contextTokens: number, call: GenerateCall): Promise<Prepared> {
  const stops = stopStrings(call.sampling);
  const texts = call.messages?.map(({ content }) => content) ?? [call.prompt ?? ''];
  const fewest = texts.reduce((sum, text) => sum + vocabulary.fewestTokens(text), 0);
  if (fewest >= contextTokens) throw tooLong(`at least ${String(fewest)}`, contextTokens);
  const prompt = vocabulary.promptTokens(await vocabulary.promptTexts(call, call.sampling.thinking));
  // The first token that is generated needs a place too.
  if (prompt.length >= contextTokens) throw tooLong(prompt.length, contextTokens);
  return { prompt, stops };
}

/** Yields until `end`. Throws the signal's reason as soon as it is seen, between two evaluations. */
export async function* generate(history: History, vocabulary: Vocabulary, prepared: Prepared, call: GenerateCall, signal: AbortSignal): AsyncGenerator<GenerateEvent, void> {
  const { prompt, stops } = prepared;
  const { sampling } = call;
  const cachedTokens = await reuse(history, prompt, sampling.seed !== undefined);
  yield { type: 'prefill', doneTokens: cachedTokens, totalTokens: prompt.length };
  const pieces = piecesOf(cachedTokens, prompt.length, history.pieceTokens);
  const computed = await history.beginCompute(Math.max(...pieces.map(({ from, to }) => to - from)));
  const rest = yield* prefill(history, prompt, pieces, sampling.maxTokens === 0, signal);
  const output = new Output({ detokenize: vocabulary.detokenize, tags: vocabulary.thoughtTags, opensInThought: vocabulary.endsInThought(prompt), stops, before: prompt });
  const most = Math.min(sampling.maxTokens, history.contextTokens - prompt.length);
  if (rest.length === 0) computed();
  const counts = yield* sample({ history, vocabulary, output, prompt, rest, most, sampling, signal, computed });
  yield { type: 'end', ...counts, promptTokens: prompt.length, cachedTokens, thoughtTokens: output.thoughtTokens };
}

/** Keeps what the sequence and the prompt share, drops the rest; resolves to how many tokens are kept. */
async function reuse(history: History, prompt: readonly Token[], mustBeExact: boolean): Promise<number> {
  const { sequence, pieceTokens } = history;
  const held = sequence.contextTokens;
  const common = commonPrefix(held, prompt);
  let kept = reusableTokens({ common, promptTokens: prompt.length, exactTokens: history.exactTokens, pieceTokens, mustBeExact });
  // Such a sequence cannot be cut short: cutting would evaluate all that stays once more, in one piece without a signal.
  if (kept < held.length && sequence.needsCheckpoints) kept = 0;
  if (kept < held.length) await sequence.eraseContextTokenRanges([{ start: kept, end: held.length }]);
  history.exactTokens = Math.min(history.exactTokens, kept);
  return kept;
}

/** Evaluates the prompt but for its last piece, from which the first token is sampled; returns that piece. */
async function* prefill(history: History, prompt: readonly Token[], pieces: readonly Piece[], all: boolean, signal: AbortSignal): AsyncGenerator<GenerateEvent, readonly Token[]> {
  for (const [index, { from, to }] of pieces.entries()) {
    signal.throwIfAborted();
    if (!all && index === pieces.length - 1) return prompt.slice(from, to);
    await history.sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(from, to));
    notePiece(history, from, to);
    yield { type: 'prefill', doneTokens: to, totalTokens: prompt.length };
  }
  signal.throwIfAborted();
  return [];
}

interface SampleRun {
  readonly history: History;
  readonly vocabulary: Vocabulary;
  readonly output: Output;
  readonly prompt: readonly Token[];
  /** Evaluated together with the first token. */
  readonly rest: readonly Token[];
  /** Tokens that may be generated: what was asked for, or what the context still holds. */
  readonly most: number;
  readonly sampling: GenerateCall['sampling'];
  readonly signal: AbortSignal;
  /** To be called after the first evaluation. */
  readonly computed: () => void;
}

interface SampleCounts {
  readonly reason: 'stop' | 'length';
  readonly completionTokens: number;
}

async function* sample(run: SampleRun): AsyncGenerator<GenerateEvent, SampleCounts> {
  const { history, vocabulary, output, prompt, rest, most, signal } = run;
  if (most === 0) return { reason: 'length', completionTokens: 0 };
  const said: Token[] = [];
  for await (const id of history.sequence.evaluate([...rest], evaluateOptions(run, said))) {
    if (said.length === 0) {
      run.computed();
      notePiece(history, prompt.length - rest.length, prompt.length);
      yield { type: 'prefill', doneTokens: prompt.length, totalTokens: prompt.length };
    }
    said.push(id);
    signal.throwIfAborted();
    const ended = vocabulary.isEnd(id);
    const piece = ended ? output.end() : output.push(id, said.length === most);
    yield { type: 'token', ids: [id], text: piece.text, thought: piece.thought };
    signal.throwIfAborted();
    if (ended || piece.stopped) return { reason: 'stop', completionTokens: said.length };
    if (said.length === most) return { reason: 'length', completionTokens: said.length };
  }
  throw new Error('the engine ended the generation without a last token');
}

/** A whole piece that joins on to whole pieces is what an empty context would have evaluated, bit for bit. */
function notePiece(history: History, from: number, to: number): void {
  if (from === history.exactTokens && to % history.pieceTokens === 0) history.exactTokens = to;
}

function evaluateOptions({ sampling, prompt }: SampleRun, said: readonly Token[]): SequenceEvaluateOptions {
  const { repeatPenalty, ...sampler } = samplerOptions(sampling);
  // The end is yielded too, so that it is known to have come.
  const options: SequenceEvaluateOptions = { ...sampler, yieldEogToken: true };
  if (repeatPenalty === 1) return options;
  const punishTokens = (): Token[] => [...prompt.slice(-penaltyTokens), ...said].slice(-penaltyTokens);
  return { ...options, repeatPenalty: { penalty: repeatPenalty, maxPunishTokens: penaltyTokens, punishTokens } };
}

function tooLong(promptTokens: number | string, contextTokens: number): LeaseholdError {
  return new LeaseholdError('context_too_small', { promptTokens, contextTokens });
}
