/** What is kept free on a card by default; an operator's own figure replaces it altogether. */
import type { CardDescription } from './types.js';

const mebibyte = 1_024 ** 2;
const gibibyte = 1_024 ** 3;

/** Cards that drive no display: room for the driver's own steps. */
const plainReserveBytes = 256 * mebibyte;
/** 0.8 GiB, cut to a whole byte (R11, R20). */
const displayBaseBytes = Math.floor(0.8 * gibibyte);

/**
 * The default reserve of a card, in bytes: 0 on simulated cards and the CPU, 256 MiB on a card without a display,
 * and R11's figure on one with: 0.8 GiB + 400 MiB, or 600 MiB on Windows, and 100 MiB more there above 15 GiB.
 */
export function defaultReserveBytes(card: Pick<CardDescription, 'kind' | 'display' | 'totalBytes'>, platform: string): number {
  if (card.kind !== 'gpu') return 0;
  if (!card.display) return plainReserveBytes;
  if (platform !== 'win32') return displayBaseBytes + 400 * mebibyte;
  return displayBaseBytes + 600 * mebibyte + (card.totalBytes > 15 * gibibyte ? 100 * mebibyte : 0);
}

/** What one step of a stranger's takes before the next reading: a desktop's next window, a game's textures, a notebook's first tensors. */
const yieldStepBytes = 2 * gibibyte;

/** What `yield: auto` makes free for other programs beside the reserve: a tenth of the card, at most 2 GiB, at least 1. */
export function defaultYieldFreeBytes(totalBytes: number): number {
  return Math.max(1, Math.min(yieldStepBytes, Math.floor(totalBytes / 10)));
}
