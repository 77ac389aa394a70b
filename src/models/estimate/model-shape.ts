/** What a model keeps for each token, layer by layer, and the widths that its buffers grow with. */

/** Elements that one layer keeps. */
export type Layer =
  /** Keys and values of every token. `windowTokens`: whether the engine forgets what is outside is not known. */
  | { readonly kind: 'full'; readonly kvHeads: number; readonly keySize: number; readonly valueSize: number; readonly windowTokens?: number }
  /** Keys and values of the last `windowTokens` alone. */
  | { readonly kind: 'sliding'; readonly kvHeads: number; readonly keySize: number; readonly valueSize: number; readonly windowTokens: number }
  /** Compressed attention (MLA): one latent a token, or keys and values of every head, as the engine has it. */
  | { readonly kind: 'latent'; readonly latentSize: number; readonly heads: number; readonly keySize: number; readonly valueSize: number }
  /** A state of fixed size for each sequence. */
  | { readonly kind: 'state'; readonly convolutionElements: number; readonly recurrentElements: number }
  | { readonly kind: 'none' };

export interface ModelShape {
  readonly layers: readonly (readonly Layer[])[];
  readonly hiddenSize: number;
  /** Width of all heads' queries together. */
  readonly querySize: number;
  /** Query heads: tensor parallelism divides them. Null where there is no attention. */
  readonly heads: number | null;
  /** Width that one token takes in the feed-forward layers: of all experts that it visits. */
  readonly feedForwardSize: number;
  readonly expertsUsed: number;
  readonly vocabulary: number;
  readonly trainedTokens: number | null;
}

/** A figure cannot be had because the file does not state `field`, or states what is not understood. */
export class UnknownField extends Error {
  override readonly name = 'UnknownField';

  constructor(readonly field: string, readonly why: string) {
    super(`${field}: ${why}`);
  }
}
