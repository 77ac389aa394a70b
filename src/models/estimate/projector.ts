/** The part that sees: its weights where they are a file of their own, and what the first image allocates (B11). */
import { Fields } from './config-fields.js';
import type { ModelFacts, ProjectorFile } from './facts.js';
import { between, sum, type Figure } from './figure.js';
import { UnknownField } from './model-shape.js';
import type { EstimateOptions } from './options.js';

interface VisionShape {
  readonly imageSide: number;
  readonly patchSide: number;
  readonly hiddenSize: number;
  readonly feedForwardSize: number;
  readonly heads: number;
}

/** Null when the model sees nothing. Throws `UnknownField` where a size is not stated. */
export function projectorOf(facts: ModelFacts, options: EstimateOptions): Figure | null {
  if (facts.projector !== null) {
    const { name, header } = facts.projector;
    const { tensorBytes, dataBytes, unknownTypes } = header;
    const weights = between(tensorBytes, unknownTypes.length > 0 ? dataBytes : tensorBytes, name);
    return sum([weights, firstUse(ggufVision(facts.projector, options), 4)]);
  }
  // Its weights are among the model's own.
  return facts.vision === null ? null : firstUse(configVision(facts.vision, options), 2);
}

/** Of one image: the streams of all patches, and at worst every head's scores of each with each. */
function firstUse({ imageSide, patchSide, hiddenSize, feedForwardSize, heads }: VisionShape, elementBytes: number): Figure {
  const patches = Math.ceil(imageSide / patchSide) ** 2;
  const streams = patches * (6 * hiddenSize + 2 * feedForwardSize) * elementBytes;
  return between(streams, streams + heads * patches * patches * elementBytes, `first image of ${String(imageSide)} pixels a side, ${String(patches)} patches`);
}

function ggufVision({ name: file, header: { scalars } }: ProjectorFile, { imageSide }: EstimateOptions): VisionShape {
  const field = (name: string): number => {
    const value = scalars.get(`clip.vision.${name}`);
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) throw new UnknownField(`clip.vision.${name}`, `${value === undefined ? 'it is missing' : `it is ${String(value)}`} in ${file}; the projector may be left out`);
    return value;
  };
  return {
    imageSide: imageSide ?? field('image_size'), patchSide: field('patch_size'), hiddenSize: field('embedding_length'),
    feedForwardSize: field('feed_forward_length'), heads: field('attention.head_count'),
  };
}

function configVision(config: NonNullable<ModelFacts['vision']>, { imageSide }: EstimateOptions): VisionShape {
  const fields = Fields.of(config, 'vision_config.');
  const hiddenSize = fields.count(['hidden_size', 'embed_dim', 'width']);
  return {
    imageSide: imageSide ?? fields.count(['image_size', 'img_size']),
    patchSide: fields.count(['patch_size']),
    hiddenSize,
    feedForwardSize: fields.optionalCount(['intermediate_size']) ?? hiddenSize * fields.count(['mlp_ratio']),
    heads: fields.count(['num_attention_heads', 'num_heads']),
  };
}

