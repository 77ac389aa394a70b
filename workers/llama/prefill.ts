/**
 * The prompt, evaluated piece by piece: llama.cpp has no signal for an evaluation in progress, so a call that is
 * cancelled stops at the next border. Borders are the same whenever a model is loaded, never timed, because the size of
 * a piece changes the last bits of what comes out.
 */

/** An evaluation takes at most about this long; a cancelled call must have stopped within 200 ms. */
const pieceTargetSeconds = 0.1;
/** A modest core; faster ones stop sooner. */
const operationsPerSecondPerThread = 16e9;
const cpuTokensMax = 64;
const cpuTokensMin = 8;
const cardTokens = 256;

export interface PieceOf {
  /** Share of the model's layers that the CPU computes: 0 with all of them on a card. */
  readonly cpuShare: number;
  readonly parameters: number;
  readonly threads: number;
  readonly batchTokens: number;
}

/** How many tokens to evaluate between two looks at the signal. */
export function pieceTokens({ cpuShare, parameters, threads, batchTokens }: PieceOf): number {
  if (cpuShare === 0) return Math.min(cardTokens, batchTokens);
  const affordable = (pieceTargetSeconds * operationsPerSecondPerThread * threads) / (2 * Math.max(1, parameters * cpuShare));
  const power = 2 ** Math.floor(Math.log2(Math.max(1, affordable)));
  return Math.min(Math.max(cpuTokensMin, Math.min(cpuTokensMax, power)), batchTokens);
}

export interface Piece {
  readonly from: number;
  readonly to: number;
}

/** The pieces of a prompt of `total` tokens of which `done` are there; borders lie at multiples of `size`. */
export function piecesOf(done: number, total: number, size: number): readonly Piece[] {
  const pieces: Piece[] = [];
  for (let from = done; from < total;) {
    const to = Math.min(total, (Math.floor(from / size) + 1) * size);
    pieces.push({ from, to });
    from = to;
  }
  return pieces;
}

/** How many leading tokens two sequences share. */
export function commonPrefix(one: readonly number[], other: readonly number[]): number {
  const most = Math.min(one.length, other.length);
  for (let index = 0; index < most; index++) if (one[index] !== other[index]) return index;
  return most;
}

export interface Reuse {
  /** Tokens that the sequence and the prompt share. */
  readonly common: number;
  readonly promptTokens: number;
  /** Leading tokens that were evaluated in whole pieces, bit for bit as an empty context would have. */
  readonly exactTokens: number;
  readonly pieceTokens: number;
  /** The caller counts on the same text for the same seed, whatever ran here before. */
  readonly mustBeExact: boolean;
}

/** Tokens of the prompt that need not be evaluated again. The last always is: it is what the next is sampled from. */
export function reusableTokens(reuse: Reuse): number {
  const most = Math.min(reuse.common, reuse.promptTokens - 1);
  if (!reuse.mustBeExact) return most;
  return Math.floor(Math.min(most, reuse.exactTokens) / reuse.pieceTokens) * reuse.pieceTokens;
}
