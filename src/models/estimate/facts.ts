/** What is known of a model's files, whatever their format: all that an estimate is made from. */
import type { JsonObject } from '../formats/config-json.js';
import type { GgufHeader } from '../formats/gguf-header.js';
import type { SafetensorsHeader } from '../formats/safetensors-header.js';
import { mergeGroups, type TensorGroup } from '../formats/tensor-groups.js';
import { Fields } from './config-fields.js';
import { shapeOfConfig } from './config-shape.js';
import { shapeOfGguf } from './gguf-shape.js';
import { UnknownField, type ModelShape } from './model-shape.js';

export interface ModelFacts {
  readonly name: string;
  readonly format: 'gguf' | 'safetensors';
  readonly architecture: string | null;
  /** Empty: only the config is at hand, and the weights are unknown. */
  readonly groups: readonly TensorGroup[];
  /** From offsets; null when no weight file has been read. */
  readonly weightBytes: number | null;
  /** More than `weightBytes` where a tensor has a type that is not known. */
  readonly weightBytesMost: number | null;
  readonly largestTensorBytes: number;
  readonly shape: ModelShape | UnknownField;
  /** The floating type most weights are stored in; null when none is. */
  readonly storedDtype: string | null;
  /** The type that the config asks for; null when it says none, or `auto`. */
  readonly configDtype: string | null;
  /** The method that packed the weights; null when they are plain. */
  readonly quantization: string | null;
  /** The output matrix is the embedding's. */
  readonly tied: boolean | null;
  /** The part that sees images: where its sizes are stated. */
  readonly vision: JsonObject | null;
  /** The part that hears, likewise. */
  readonly audio: JsonObject | null;
  /** A projector file of its own, beside the model. */
  readonly projector: ProjectorFile | null;
}

export interface ProjectorFile {
  readonly name: string;
  readonly header: GgufHeader;
}

/** `headers`: of the model's files, in order; a split model has several. */
export function factsOfGguf(name: string, headers: readonly [GgufHeader, ...GgufHeader[]], projector: ProjectorFile | null = null): ModelFacts {
  const [first] = headers;
  const groups = mergeGroups(headers.map((header) => header.groups));
  const knownBytes = headers.reduce((sum, { tensorBytes }) => sum + tensorBytes, 0);
  const unknown = headers.some(({ unknownTypes }) => unknownTypes.length > 0);
  const architecture = first.scalars.get('general.architecture');
  return {
    name, format: 'gguf', groups, projector,
    architecture: typeof architecture === 'string' ? architecture : null,
    weightBytes: knownBytes,
    weightBytesMost: unknown ? headers.reduce((sum, { dataBytes }) => sum + dataBytes, 0) : knownBytes,
    largestTensorBytes: largest(groups),
    shape: shapeOr(() => shapeOfGguf({ ...first, groups })),
    storedDtype: storedDtype(groups),
    configDtype: null,
    quantization: null,
    tied: !groups.some(({ pattern }) => pattern === 'output.weight'),
    vision: null,
    audio: null,
  };
}

/** `headers`: of exactly the files that the index names, or of the one file there is; empty: only the config is at hand. */
export function factsOfSafetensors(name: string, config: JsonObject, headers: readonly SafetensorsHeader[]): ModelFacts {
  const groups = mergeGroups(headers.map((header) => header.groups));
  const fields = Fields.ofLanguageModel(config);
  const { architectures, quantization_config: outer } = config;
  const sense = (name: string): JsonObject | null => asObject(config[name]) ?? asObject(nested(config, 'thinker_config', name));
  const quantization = Fields.of(asObject(outer) ?? asObject(fields.raw('quantization_config')) ?? {});
  const tied = fields.raw('tie_word_embeddings') ?? config['tie_word_embeddings'];
  const bytes = headers.length === 0 ? null : headers.reduce((sum, { tensorBytes }) => sum + tensorBytes, 0);
  return {
    name, format: 'safetensors', groups,
    architecture: Array.isArray(architectures) && typeof architectures[0] === 'string' ? architectures[0] : null,
    weightBytes: bytes,
    weightBytesMost: bytes,
    largestTensorBytes: largest(groups),
    shape: shapeOr(() => shapeOfConfig(config, groups)),
    storedDtype: storedDtype(groups),
    configDtype: statedDtype(config, fields),
    quantization: quantization.text('quant_method') ?? quantization.text('quant_algo'),
    tied: typeof tied === 'boolean' ? tied : null,
    vision: sense('vision_config'),
    audio: sense('audio_config'),
    projector: null,
  };
}

/** `dtype` and its old name, of the language model first; a map of several has its base under the empty key (B169). */
function statedDtype(config: JsonObject, fields: Fields): string | null {
  for (const stated of [fields.raw('dtype', 'torch_dtype'), Fields.of(config).raw('dtype', 'torch_dtype')]) {
    const base = asObject(stated)?.[''] ?? stated;
    if (typeof base === 'string' && base !== 'auto') return base.replace(/^torch\./, '');
  }
  return null;
}

const floats = ['F64', 'F32', 'F16', 'BF16'];

/** By bytes: a few norms in single precision do not make a model one of single precision. */
function storedDtype(groups: readonly TensorGroup[]): string | null {
  const bytes = floats.map((dtype) => groups.reduce((sum, group) => sum + (group.dtype === dtype ? group.bytes : 0), 0));
  const most = Math.max(...bytes);
  return most === 0 ? null : floats[bytes.indexOf(most)] ?? null;
}

function largest(groups: readonly TensorGroup[]): number {
  return groups.reduce((most, { largestBytes }) => Math.max(most, largestBytes), 0);
}

function shapeOr(read: () => ModelShape): ModelShape | UnknownField {
  try {
    return read();
  } catch (error) {
    if (error instanceof UnknownField) return error;
    throw error;
  }
}

function asObject(value: unknown): JsonObject | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value as JsonObject : null;
}

function nested(config: JsonObject, ...keys: readonly string[]): unknown {
  return keys.reduce<unknown>((value, key) => asObject(value)?.[key], config);
}
