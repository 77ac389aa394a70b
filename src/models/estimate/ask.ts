/** A model by what a person calls it, estimated: a GGUF file, a folder, or a repository on a hub that is not here yet. */
import { realpath } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { HubClient } from '../hub/client.js';
import { hubSettings } from '../hub/settings.js';
import { inspectReference } from '../inspect/inspect.js';
import { currentPolicy } from '../policy/policy.js';
import { curatedProfiles, shippedFolder } from '../profile/curated.js';
import { createReading, type Reading } from '../reading/reading.js';
import { parseHubReference, parseReference } from '../reference.js';
import { errorsOf, type LearnedError, type LearnedSize } from '../learned/learned-size.js';
import { listLearned } from '../learned/learned-store.js';
import { partPaths } from '../formats/gguf-parts.js';
import { fileSource } from '../formats/source.js';
import { estimate, unknownSize, type ModelEstimate } from './estimate.js';
import type { ModelFacts } from './facts.js';
import { exact } from './figure.js';
import { hubFiles } from './hub-files.js';
import { withLearned } from './learned.js';
import { askLlama, type LlamaAnswer } from './llama-reckoning.js';
import { localFiles } from './local-files.js';
import { UnknownField } from './model-shape.js';
import { defaultOptions, llamaBatchTokens, type Backend, type EstimateOptions } from './options.js';
import { backendOf, placeOfProfile, placeOfPulled, type PlaceHere, type PlaceOnHub } from './places.js';
import { readFacts, type OpenSource } from './read-facts.js';

/** A file here by its path; `fitting`: the one that was pulled with the model, or would be; of other files here none is guessed. */
export type WantedProjector = { readonly path: string } | 'fitting' | 'none';

interface Wanted {
  readonly projector: WantedProjector;
  /** Left out: what the model was pulled for, or its format says. */
  readonly backend: Backend | undefined;
}

export interface Question extends Partial<Omit<EstimateOptions, 'contextTokens'>> {
  readonly model: string;
  /** Null: what the model was trained on, at most the policy's default. */
  readonly contextTokens: number | null;
  readonly projector: WantedProjector;
  /** A path or a reference. */
  readonly draft: string | null;
  readonly declaredBytes: number | null;
  /** False: llama.cpp is not asked, though it may be installed. */
  readonly askEngine: boolean;
  /** The cards' names, where they are known: one for each rank. */
  readonly devices?: readonly string[];
}

export interface Surroundings {
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly limits: Limits;
  /** Where measured sizes lie. Left out: none are looked at. */
  readonly learnedFolder?: string;
  readonly signal?: AbortSignal;
}

export interface Answer {
  readonly estimate: ModelEstimate;
  /** What llama.cpp itself said; null where it was not asked. */
  readonly engine: LlamaAnswer | null;
  /** What the model was made for; null where its files do not say. */
  readonly trainedTokens: number | null;
  /** What loads of this file have shown, card by card. */
  readonly learned: readonly LearnedError[];
}

/** Rejects with `estimate_unknown`, `model_invalid`, `input_invalid`, or what the hub refuses with. */
export async function askEstimate(question: Question, surroundings: Surroundings): Promise<Answer> {
  const { limits } = surroundings;
  const reading = createReading({ timeoutMs: limits.headerReadMs, memoryBytesMax: limits.headerMemoryBytesMax });
  try {
    const found = await factsOfReference(question.model, { projector: question.projector, backend: question.backend }, surroundings, reading);
    const backend = question.backend ?? found.backend;
    const draft = question.draft === null ? null : (await factsOfReference(question.draft, { projector: 'none', backend }, surroundings, reading)).facts;
    const options: EstimateOptions = { ...defaultOptions, ...withoutUndefined(question), backend, contextTokens: question.contextTokens ?? contextOf(found.facts, question.declaredBytes) };
    const own = estimate({ facts: found.facts, options, draft, declaredBytes: question.declaredBytes });
    const asks = question.askEngine && found.path !== null && backend === 'llama' && own.source === 'estimated' && options.kvDtype === null && options.flashAttention === null;
    const trainedTokens = trainedOf(found.facts);
    const engine = asks ? await askLlama(found.path, options.contextTokens, options.batchTokens ?? llamaBatchTokens, limits.headerReadMs, surroundings.signal) : null;
    const sizes = await sizesOf(own.model, surroundings);
    const reckoned = engine === null || 'missing' in engine ? own : withEngine(own, engine, options);
    return { estimate: withDevices(withLearned(reckoned, sizes), question.devices), engine, trainedTokens, learned: sizes.flatMap(errorsOf) };
  } finally {
    await reading.close();
  }
}

/** What loads of this file have measured, whichever way its path was written. */
async function sizesOf(source: string, { learnedFolder }: Surroundings): Promise<readonly LearnedSize[]> {
  if (learnedFolder === undefined || !isAbsolute(source)) return [];
  const real = await realpath(source).catch(() => source);
  return (await listLearned(learnedFolder)).filter((size) => size.source === real || size.source === source);
}

interface Found {
  readonly facts: ModelFacts;
  readonly backend: Backend;
  /** Where it lies, when it is one GGUF file (the first of its parts) here. */
  readonly path: string | null;
}

async function factsOfReference(text: string, wanted: Wanted, surroundings: Surroundings, reading: Reading): Promise<Found> {
  const place = await placeOf(text, wanted.backend, surroundings);
  return 'path' in place ? factsHere(place, wanted, surroundings, reading) : factsOnHub(place, wanted, surroundings, reading);
}

/** A profile stands for files: those that ship or were pulled lie here, those of a repository on its hub. */
async function placeOf(text: string, backend: Backend | undefined, { env, cwd }: Surroundings): Promise<PlaceHere | PlaceOnHub> {
  const curated = curatedProfiles();
  const reference = parseReference(text, { cwd, curatedIds: new Set(curated.keys()) });
  if ('path' in reference) return { path: reference.path, backend: null, projector: null };
  if (reference.kind === 'generated') return placeOfProfile(reference.id, env, cwd);
  if (reference.kind === 'hub') return await placeOfPulled(reference, backend, env, cwd) ?? { reference, projector: true };
  const profile = curated.get(reference.id);
  if (profile === undefined) throw new LeaseholdError('model_unknown', { model: reference.id, known: [...curated.keys()].join(', ') });
  const shipped = shippedFolder(profile);
  if (shipped !== null) return { path: shipped, backend: null, projector: null };
  const onHub = parseHubReference(`${profile.repository}@${profile.revision}`);
  return await placeOfPulled(onHub, backend, env, cwd) ?? { reference: onHub, projector: true };
}

async function factsHere({ path, backend, projector: own }: PlaceHere, wanted: Wanted, { cwd, signal }: Surroundings, reading: Reading): Promise<Found> {
  const named = typeof wanted.projector === 'string' ? null : resolve(cwd, wanted.projector.path);
  const projector = wanted.projector === 'none' ? null : named ?? own;
  const files = await localFiles(path, { backend: wanted.backend ?? backend ?? undefined, projector }, reading);
  const facts = await readFacts(files, reading, signal);
  if (files.format === 'gguf') return { facts, backend: 'llama', path: partPaths(files.name)[0] ?? files.name };
  return { facts, backend: backend ?? 'transformers', path: null };
}

async function factsOnHub(place: PlaceOnHub, wanted: Wanted, { env, cwd, limits, signal }: Surroundings, reading: Reading): Promise<Found> {
  const client = new HubClient({ settings: hubSettings(env), limits, ...(signal === undefined ? {} : { signal }) });
  const inspection = await inspectReference({ client, reading, policy: currentPolicy(), limits }, place.reference, { projector: wanted.projector === 'fitting' && place.projector, ...wanted.backend === 'llama' ? { backend: 'llama_cpp' } : {} });
  const files = hubFiles(client, inspection);
  // One that was named lies here.
  const named = typeof wanted.projector === 'string' || files.format !== 'gguf' ? files : { ...files, projector: fileAt(resolve(cwd, wanted.projector.path)) };
  return { facts: await readFacts(named, reading, signal), backend: backendOf(inspection.profile), path: null };
}

function fileAt(path: string): OpenSource {
  return () => fileSource(path);
}

function trainedOf({ shape }: ModelFacts): number | null {
  return shape instanceof UnknownField ? null : shape.trainedTokens;
}

function contextOf(facts: ModelFacts, declaredBytes: number | null | undefined): number {
  // What is wrong with its files is told by its name, not as a context that they do not give.
  if (facts.shape instanceof UnknownField && (declaredBytes ?? null) === null) throw unknownSize(facts, facts.shape);
  const trained = trainedOf(facts);
  if (trained === null) throw new LeaseholdError('input_invalid', { field: 'context', reason: `${facts.name} does not say how long its context may be` });
  return Math.min(trained, currentPolicy().defaultContextTokens);
}

function withDevices(estimate: ModelEstimate, devices: readonly string[] = []): ModelEstimate {
  return { ...estimate, cards: estimate.cards.map((card) => ({ ...card, device: devices[card.rank] ?? null })) };
}

/** llama.cpp's own figures in place of ours; what it does not know of (other slots, projector, draft, a card's host share) stays. */
function withEngine(own: ModelEstimate, { version, weightBytes, contextBytes }: Exclude<LlamaAnswer, { readonly missing: boolean }>, options: EstimateOptions): ModelEstimate {
  const said = `by llama.cpp itself (node-llama-cpp ${version})`;
  return {
    ...own,
    cards: own.cards.map((card) => {
      const stays = options.onCard ? own.host.bytes : 0;
      const weights = exact(Math.max(card.weights.leastBytes, weightBytes - stays), said);
      // It gives cache and buffers in one; the cache is what both agree on to the byte.
      const compute = exact(Math.max(0, contextBytes * options.parallel - card.kv.bytes), `${said}, reckoned for the CPU`);
      const changed = weights.bytes - card.weights.bytes + compute.bytes - card.compute.bytes;
      const moved = { ...card.total, bytes: card.total.bytes + changed, leastBytes: Math.min(card.total.leastBytes, card.total.bytes + changed) };
      return { ...card, weights, compute, total: moved, loadPeak: { ...card.loadPeak, bytes: Math.max(moved.bytes, card.loadPeak.bytes + changed) } };
    }),
  };
}

function withoutUndefined(question: Question): Partial<EstimateOptions> {
  const { parallel, kvDtype, batchTokens, ranks, onCard, flashAttention, castTo, imageSide } = question;
  return Object.fromEntries(Object.entries({ parallel, kvDtype, batchTokens, ranks, onCard, flashAttention, castTo, imageSide }).filter(([, value]) => value !== undefined));
}
