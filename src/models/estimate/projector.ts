/** The part that sees or hears: its weights where they are a file of their own, and what the first image or sound allocates (B11). */
import { Fields } from './config-fields.js';
import type { ModelFacts, ProjectorFile } from './facts.js';
import { between, sum, type Figure } from './figure.js';
import { UnknownField } from './model-shape.js';
import type { EstimateOptions } from './options.js';

interface Encoder {
  /** Of one image, or of one piece of sound: what attends to each other. */
  readonly positions: number;
  readonly hiddenSize: number;
  readonly feedForwardSize: number;
  readonly heads: number;
  /** What the first of them is, in words. */
  readonly what: string;
}

/** Null when the model sees and hears nothing. Throws `UnknownField` where a size is not stated. */
export function projectorOf(facts: ModelFacts, options: EstimateOptions): Figure | null {
  if (facts.projector !== null) {
    const { name, header: { tensorBytes, dataBytes, unknownTypes } } = facts.projector;
    const weights = between(tensorBytes, unknownTypes.length > 0 ? dataBytes : tensorBytes, name);
    return sum([weights, ...ggufEncoders(facts.projector, options).map((encoder) => firstUse(encoder, 4))]);
  }
  // Its weights are among the model's own.
  const encoders = [...facts.vision === null ? [] : [configVision(facts.vision, options)], ...facts.audio === null ? [] : [configHearing(facts.audio)]];
  return encoders.length === 0 ? null : sum(encoders.map((encoder) => firstUse(encoder, 2)));
}

/** The streams of all positions, and at worst every head's scores of each with each. */
function firstUse({ positions, hiddenSize, feedForwardSize, heads, what }: Encoder, elementBytes: number): Figure {
  const streams = positions * (6 * hiddenSize + 2 * feedForwardSize) * elementBytes;
  return between(streams, streams + heads * positions * positions * elementBytes, what);
}

/** What sees and what hears are loaded side by side, each with buffers of its own. */
function ggufEncoders(file: ProjectorFile, options: EstimateOptions): readonly Encoder[] {
  const { scalars } = file.header;
  const hears = scalars.get('clip.has_audio_encoder') === true;
  // The oldest files know of nothing but images.
  const sees = (scalars.get('clip.has_vision_encoder') ?? !hears) === true;
  if (!sees && !hears) throw unknown(file, 'clip.has_vision_encoder', 'neither images nor sound are said to go through it');
  return [...sees ? [ggufVision(file, options)] : [], ...hears ? [ggufHearing(file)] : []];
}

function ggufVision(file: ProjectorFile, { imageSide }: EstimateOptions): Encoder {
  return { ...patches(imageSide ?? field(file, 'clip.vision.image_size'), field(file, 'clip.vision.patch_size')), ...widths(file, 'vision') };
}

/** Encoders of Whisper's kind: sound is cut into pieces that fill the positions they were trained with, which the file holds a tensor of. */
const hearsInPieces = new Set(['ultravox', 'voxtral', 'qwen2a', 'qwen2.5o', 'glma']);

function ggufHearing(file: ProjectorFile): Encoder {
  const { scalars, groups } = file.header;
  const own = 'clip.audio.projector_type';
  const key = scalars.has(own) ? own : 'clip.projector_type';
  const kind = scalars.get(key);
  if (kind === undefined) throw unknown(file, own, 'it is missing');
  if (typeof kind !== 'string' || !hearsInPieces.has(kind)) throw unknown(file, key, `it is ${String(kind)}, and how much sound that takes at once is not known`);
  const positions = groups.find(({ pattern }) => pattern === 'a.position_embd.weight')?.shape?.[1];
  if (positions === undefined || positions < 1) throw unknown(file, 'a.position_embd.weight', 'there is no such tensor');
  return { ...widths(file, 'audio'), ...sound(positions) };
}

function widths(file: ProjectorFile, sense: 'vision' | 'audio'): Pick<Encoder, 'hiddenSize' | 'feedForwardSize' | 'heads'> {
  const of = (name: string): number => field(file, `clip.${sense}.${name}`);
  return { hiddenSize: of('embedding_length'), feedForwardSize: of('feed_forward_length'), heads: of('attention.head_count') };
}

function patches(imageSide: number, patchSide: number): Pick<Encoder, 'positions' | 'what'> {
  const positions = Math.ceil(imageSide / patchSide) ** 2;
  return { positions, what: `first image of ${String(imageSide)} pixels a side, ${String(positions)} patches` };
}

function sound(positions: number): Pick<Encoder, 'positions' | 'what'> {
  return { positions, what: `first sound, ${String(positions)} positions` };
}

function field(file: ProjectorFile, name: string): number {
  const value = file.header.scalars.get(name);
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) throw unknown(file, name, value === undefined ? 'it is missing' : `it is ${String(value)}`);
  return value;
}

function unknown({ name: file }: ProjectorFile, name: string, why: string): UnknownField {
  return new UnknownField(name, `${why} in ${file}; the projector may be left out`);
}

function configVision(config: NonNullable<ModelFacts['vision']>, { imageSide }: EstimateOptions): Encoder {
  const fields = Fields.of(config, 'vision_config.');
  const hiddenSize = fields.count(['hidden_size', 'embed_dim', 'width']);
  return {
    ...patches(imageSide ?? fields.count(['image_size', 'img_size']), fields.count(['patch_size'])),
    hiddenSize,
    feedForwardSize: fields.optionalCount(['intermediate_size']) ?? hiddenSize * fields.count(['mlp_ratio']),
    heads: fields.count(['num_attention_heads', 'num_heads']),
  };
}

function configHearing(config: NonNullable<ModelFacts['audio']>): Encoder {
  const fields = Fields.of(config, 'audio_config.');
  return {
    ...sound(fields.count(['max_source_positions'])),
    hiddenSize: fields.count(['d_model', 'hidden_size']),
    feedForwardSize: fields.count(['encoder_ffn_dim', 'intermediate_size']),
    heads: fields.count(['encoder_attention_heads', 'num_attention_heads']),
  };
}
