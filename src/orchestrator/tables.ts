/** The tables of what can be given to the library, and the refusals that name the field and what is allowed. */
import {
  LeaseholdError, classes, integer, leasePart, number, requestClass, string, list, type ChatMessage, type ClassPolicy, type HostNeed, type ModelPolicy,
} from '../../protocol/index.js';
import { normaliseDevice } from '../../broker/devices/uuid.js';
import type { Log } from '../../broker/shell/index.js';
import { aFunction, aNumber, anything, as, listOf, mapOf, object, orNull, text, that, truth, type Check, type Table } from './checks.js';
import { isHostMemoryWord } from './host-memory.js';
import type { EngineOptions, HostMemoryOptions, ModelOptions, OrchestratorOptions } from './options.js';
import type { CallOptions, EvictOptions, GenerateInput, GenerateOptions, HostLeaseRequest } from './types.js';

const dayMs = 24 * 3_600_000;
/** Timers reach no further. */
const deadlineMs = as(integer(1, 24 * dayMs, 'ms'));
const durationMs = as(integer(0, 30 * dayMs, 'ms'));
const aClass = as(requestClass());
const aCard = that('the UUID of a card, like GPU-…, and no index', (value) => typeof value === 'string' && normaliseDevice(value) !== null);
const someCards = that('a list of the UUIDs of cards, like [\'GPU-…\', \'GPU-…\'], and no indices', (value) => Array.isArray(value) && value.length > 0 && value.every((each) => aCard(each, '') === null));
/** Also of another realm, or another's making: what is followed of it is what must be there. */
const aSignal = that('an AbortSignal', (value) => {
  const signal = value as Partial<AbortSignal> | null;
  return typeof signal?.aborted === 'boolean' && typeof signal.addEventListener === 'function' && typeof signal.removeEventListener === 'function';
});
/** More is checked where bytes are counted. */
const someBytes = orNull(aNumber);

const classPolicy = object({ rank: aNumber, ageingMs: durationMs, minimumResidencyMs: durationMs, longestWaitMs: durationMs, drainAfterMs: durationMs } satisfies Table<ClassPolicy>);
const log = that('an object with debug, info, warn and error', (value) => (['debug', 'info', 'warn', 'error'] satisfies (keyof Log)[])
  .every((level) => typeof (value as Partial<Log> | null)?.[level] === 'function'));

const model = object({
  source: text, engine: as(string(64, /./)), contextTokens: as(integer(1, 16_777_216, 'tokens')), parallel: as(integer(1, 1_024, 'calls')), ttlMs: orNull(durationMs),
  preload: truth, pinned: truth, exclusive: truth, device: orNull(aCard), cards: as(integer(1, 64, 'cards')), devices: orNull(someCards), class: aClass, aliases: listOf(text, 'a list of names'), declaredBytes: someBytes,
  embedding: truth, offload: orNull(object({ minGpuLayers: as(integer(0, 10_000, 'layers')) }, 'an object like { minGpuLayers: 16 }', ['minGpuLayers'])), options: mapOf(that('a string', (value) => typeof value === 'string'), 'an object of strings'),
} satisfies Table<ModelOptions>, 'an object like { source: \'/models/a.gguf\' }', ['source']);

const anEngine = object({
  name: text, command: text, args: listOf(that('a string', (value) => typeof value === 'string'), 'a list of strings'),
  env: mapOf(that('a string', (value) => typeof value === 'string'), 'an object of strings'), modelsPerWorker: as(integer(1, 1_000_000, 'models')),
  floorBytes: aNumber, cpuFallback: that('allow or refuse', (value) => value === 'allow' || value === 'refuse'),
} satisfies Table<EngineOptions>, 'an object', ['name']);

const orchestrator = object({
  models: mapOf(model, 'an object of models by name'),
  devices: listOf(text, 'a list like [\'auto\'], [\'cpu\'] or [\'sim:24MiB\']'),
  reserveBytes: that('a number of bytes, or an object of such by card', (value) => value === null || typeof value === 'number' || (typeof value === 'object' && !Array.isArray(value))),
  yieldFreeBytes: that('off, auto, a number of bytes, or an object of such by card', (value) => value === null || ['number', 'string'].includes(typeof value) || (typeof value === 'object' && !Array.isArray(value))),
  hostMemory: object({
    lease: that('auto, system, off or sim:64MiB', isHostMemoryWord), reserveBytes: someBytes, allowUnknown: truth,
  } satisfies Table<HostMemoryOptions>),
  broker: that('auto, own or attach', (value) => value === 'auto' || value === 'own' || value === 'attach'),
  stateFolder: text, allowLedgerOnly: truth, engines: listOf(anEngine, 'a list of engines'),
  // Each of them is checked, by name and by value, where they are put together.
  limits: mapOf(anything, 'an object of limits'),
  classPolicies: object(Object.fromEntries(classes.map((name) => [name, classPolicy]))),
  onBrokerLost: aFunction, onBrokerChange: aFunction, onIgnored: aFunction, onUnusable: aFunction, log,
} satisfies Table<OrchestratorOptions>);

const call = { signal: aSignal, class: aClass, deadlineMs, onStage: aFunction } satisfies Table<CallOptions>;

const generate = {
  ...call,
  maxTokens: as(integer(0, 16_777_216, 'tokens')), temperature: as(number(0, 100)), topK: as(integer(0, 1_000_000, 'tokens')), topP: as(number(0, 1)), minP: as(number(0, 1)),
  repeatPenalty: as(number(0, 100)), seed: that('a bigint, a whole number or decimal digits', (value) => ['bigint', 'number', 'string'].includes(typeof value)),
  stop: as(list(string(256), 16)), thinking: truth,
} satisfies Table<GenerateOptions>;

const message = object({
  role: that('system, user, assistant or tool', (value) => ['system', 'user', 'assistant', 'tool'].includes(value as string)), content: as(string(4 * 1024 * 1024)),
} satisfies Table<ChatMessage>, 'an object { role, content }', ['role', 'content']);
const prompt = as(string(8 * 1024 * 1024));
const messages = listOf(message, 'a list of { role, content }');
const inputKinds = 'a string, { prompt } or { messages }';

const evict = { target: that('host or none', (value) => value === 'host' || value === 'none'), deadlineMs } satisfies Table<EvictOptions>;

const policy = object({ ttlMs: orNull(durationMs), pinned: truth, exclusive: truth } satisfies Table<ModelPolicy>, 'an object', ['ttlMs', 'pinned', 'exclusive']);
const memoryBytes = as(integer(0, Number.MAX_SAFE_INTEGER, 'bytes'));
const memory = object({ neededBytes: memoryBytes, copyBytes: memoryBytes, peakBytes: memoryBytes, parkPeakBytes: orNull(memoryBytes) } satisfies Table<Partial<HostNeed>>, 'an object like { copyBytes }');
const lease = {
  model: as(string(256, /^[^\p{C}]+$/u)), device: aCard, parts: as(list(leasePart(), 1_024)),
  // Refused as bytes that are none, with their bounds.
  bytes: anything,
  peakBytes: as(integer(0, Number.MAX_SAFE_INTEGER, 'bytes')), class: aClass, deadlineMs, policy, parkable: truth, host: memory, loading: truth, onEvict: aFunction, signal: aSignal, onWaiting: aFunction,
} satisfies Table<HostLeaseRequest>;

/** Whoever writes code finds what can be given in the types of the package. */
export const optionsHelp = 'The type OrchestratorOptions of the package lists every option with its meaning.';

/** Throws `config_invalid` naming the option, or the model and its field, and what is allowed there. */
export function checkOptions(options: unknown): asserts options is OrchestratorOptions {
  const fault = orchestrator(options, '');
  if (fault === null) return;
  const ofModel = fault.path.startsWith('models.');
  throw new LeaseholdError('config_invalid', { path: ofModel ? 'models' : 'options', where: ofModel ? fault.path.slice('models.'.length) : fault.path || 'options', reason: fault.reason, ...(fault.path === '' ? {} : { option: fault.path }) }, { help: optionsHelp });
}

/** Throws `input_invalid`: for each of these what is wrong with it first. */
export const checked = {
  call: (options: CallOptions): void => { refuse(object(call)(options, ''), 'options'); },
  generate: (options: GenerateOptions): void => { refuse(object(generate)(options, ''), 'options'); },
  evict: (options: EvictOptions): void => { refuse(object(evict)(options, ''), 'options'); },
  pinned: (pinned: boolean): void => { refuse(truth(pinned, 'pinned'), 'pinned'); },
  name: (name: string): void => { refuse(text(name, 'model'), 'model'); },
  count: (count: number): void => { refuse(as(integer(1, 1_000, 'records'))(count, 'count'), 'count'); },
  texts: (inputs: readonly string[]): void => { refuse(as(list(string(1024 * 1024), 2_048))(inputs, 'inputs'), 'inputs'); },
  input: (input: GenerateInput): void => { refuse(inputFault(input, 'input'), 'input'); },
  lease: (request: HostLeaseRequest): void => {
    refuse(object(lease, 'an object like { model, bytes, onEvict }', ['model', 'onEvict'])(request, ''), 'request');
    if (request.bytes === undefined && request.parts === undefined) refuse({ path: 'bytes', reason: 'give bytes, or parts' }, 'bytes');
  },
};

const inputFault: Check = (input, path) => {
  if (typeof input === 'string') return prompt(input, path);
  const fault = object({ prompt, messages }, inputKinds)(input, path);
  if (fault !== null) return fault;
  const given = Object.values(input as object).filter((each) => each !== undefined).length;
  return given === 1 ? null : { path, reason: `it must be ${inputKinds}, and one of them` };
};

function refuse(fault: ReturnType<Check>, whole: string): void {
  if (fault !== null) throw new LeaseholdError('input_invalid', { field: fault.path || whole, reason: fault.reason });
}
