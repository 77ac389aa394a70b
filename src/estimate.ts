/** What an app is told of a model's size before it touches a card. */
import { LeaseholdError, defaultLimits, parseBytes, type Limits } from '../protocol/index.js';
import { askEstimate, type Answer, type WantedProjector } from './models/estimate/ask.js';
import type { Backend } from './models/estimate/options.js';
import { learnedFolder } from './models/learned/learned-store.js';
import { defaultStatePath } from './orchestrator/state.js';

export type { CardEstimate, ModelEstimate } from './models/estimate/estimate.js';
export type { Figure } from './models/estimate/figure.js';
export type { Answer as EstimateAnswer } from './models/estimate/ask.js';

/** All of it may be left out. */
export interface EstimateRequest {
  /** Tokens of one context. Left out: what the model was trained on, at most 32,768. */
  readonly context?: number;
  /** Contexts at once. Default 1. */
  readonly parallel?: number;
  /** Of the cache: a GGML type for llama (`q8_0`), `fp8` or a float for the others. Left out: what the engine takes by itself. */
  readonly kvDtype?: string;
  /** Left out: what it was pulled for, else what its format is for. */
  readonly backend?: Backend;
  /** How many cards one copy is divided over, or which; `['cpu']`: none. Default 1. More than one are for Transformers and vLLM. */
  readonly devices?: number | readonly string[];
  /** `fitting` (the default): the one that was pulled with the model, or would be. */
  readonly projector?: WantedProjector;
  /** A draft model: a path or a reference. */
  readonly draft?: string;
  /** The operator's word where no size can be worked out; bytes, or `6GiB`. */
  readonly declaredBytes?: number | string;
  /** False: llama.cpp is not asked, though it may be installed. */
  readonly askEngine?: boolean;
  /** Where sizes that were measured lie. Default: that of this user's broker. */
  readonly stateFolder?: string;
  /** Default: the process's own. */
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly limits?: Partial<Limits>;
  readonly signal?: AbortSignal;
}

const devicesMax = 64;

/** As `estimate` of the library. */
export async function estimateModel(model: string | { readonly id: string }, request: EstimateRequest = {}): Promise<Answer> {
  const { context = null, parallel, kvDtype, backend, draft = null, declaredBytes, askEngine = true, projector = 'fitting', stateFolder = defaultStatePath(), cwd = process.cwd(), env = process.env, limits, signal } = request;
  const question = {
    model: typeof model === 'string' ? model : model.id, contextTokens: context, projector, draft, askEngine,
    declaredBytes: typeof declaredBytes === 'string' ? parseBytes(declaredBytes, 'declaredBytes') : declaredBytes ?? null,
    ...parallel === undefined ? {} : { parallel }, ...kvDtype === undefined ? {} : { kvDtype }, ...backend === undefined ? {} : { backend }, ...cardsOf(request),
  };
  return askEstimate(question, { env, cwd, limits: { ...defaultLimits, ...limits }, learnedFolder: learnedFolder(stateFolder), ...signal === undefined ? {} : { signal } });
}

function cardsOf({ devices = 1 }: EstimateRequest): { readonly ranks: number; readonly onCard: boolean; readonly devices?: readonly string[] } {
  if (typeof devices !== 'number' && devices.length === 1 && devices[0] === 'cpu') return { ranks: 1, onCard: false, devices };
  const ranks = typeof devices === 'number' ? devices : devices.length;
  const fault = !Number.isSafeInteger(ranks) || ranks < 1 || ranks > devicesMax ? `it must be a number of cards from 1 to ${String(devicesMax)}, or a list of as many`
    : typeof devices !== 'number' && new Set(devices).size < ranks ? 'it names a card twice'
      : typeof devices !== 'number' && devices.includes('cpu') ? 'cpu stands alone' : null;
  if (fault !== null) throw new LeaseholdError('input_invalid', { field: 'devices', reason: fault });
  return { ranks, onCard: true, ...typeof devices === 'number' ? {} : { devices } };
}
