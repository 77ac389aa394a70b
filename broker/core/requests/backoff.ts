/** After a failed load or spawn: a pause by model and card, doubled each time (B79). */
import { inMs } from '../clock.js';
import type { Refusal } from './deny.js';
import { count, listed, publish, secondsInWords } from '../report.js';
import type { Backoff, Core } from '../state.js';

const backoffsMax = 16_384;
/** Why a load failed: by what the engine says of the model, or by what others may have caused: an end of its process, or of the card's memory. */
export type FailureOf = 'model' | 'anybody';
/** What others may have caused is the model's own when it comes so many times in a row. */
const blamedFrom = 3;

/** The failure that still forbids an attempt, or null. */
export function backingOff(core: Core, model: string, device: string): Backoff | null {
  const backoff = core.backoffs.get(backoffKey(model, device));
  return backoff !== undefined && backoff.untilUs > core.attendedUs ? backoff : null;
}

/**
 * Since when it has failed there, for a reason of its own, without a success between; null: it has not, or
 * its last failure is so long ago that it is forgotten. Until then it evicts no
 * model that has been used since: the room for its first try came from them (ADR 0046).
 */
export function failingSinceUs(core: Core, model: string, device: string): number | null {
  const backoff = core.backoffs.get(backoffKey(model, device));
  return backoff === undefined || isForgotten(core, backoff) ? null : backoff.failingSinceUs;
}

/** What a request is told that would find room only where models have been used since its own first failed. */
export function sparedRefusal(core: Core, model: string, device: string, spared: readonly string[]): Refusal | null {
  const backoff = core.backoffs.get(backoffKey(model, device));
  if (backoff === undefined) return null;
  const forgottenMs = Math.max(0, Math.ceil((forgottenUs(core, backoff) - core.attendedUs) / 1_000));
  const waitMs = Math.min(forgottenMs, core.options.limits.backoffLastMs);
  const spares = `${listed(spared)} ${spared.length === 1 ? 'has' : 'have'} been used since and will not be evicted for it in the next ${secondsInWords(forgottenMs)} (leasehold evict MODEL does it now)`;
  return refusalOf(model, backoff.failures, `${backoff.reason}; ${spares}`, waitMs);
}

/**
 * An attempt failed. The first pause is never shorter than what the attempt
 * cost the card, so that a load which fails slowly cannot keep it busy.
 */
export function failed(core: Core, model: string, device: string, of: FailureOf, reason: string, costMs: number): void {
  const backoff = entry(core, model, device);
  if (isForgotten(core, backoff)) Object.assign(backoff, { failures: 0, failingSinceUs: null });
  backoff.failures++;
  if (of === 'model' || backoff.failures >= blamedFrom) backoff.failingSinceUs ??= core.attendedUs;
  backoff.failedUs = core.attendedUs;
  backoff.reason = reason;
  const { backoffFirstMs, backoffLastMs } = core.options.limits;
  const firstMs = Math.max(backoffFirstMs, costMs);
  const pauseMs = Math.min(backoffLastMs, firstMs * 2 ** Math.min(30, backoff.failures - 1));
  backoff.untilUs = inMs(core, pauseMs);
  count(core, 'loadFailures');
  publish(core, 'backing_off', { model, device, failures: backoff.failures, retryAfterMs: Math.ceil(pauseMs), reason });
}

/** An OOM inside a lease: true if the one corrective retry is given; it is no failure of the model (B22, B38, B115). */
export function retryAfterOom(core: Core, model: string, device: string, reason: string): boolean {
  const backoff = entry(core, model, device);
  if (backoff.retried) return false;
  backoff.retried = true;
  backoff.reason = reason;
  count(core, 'oomRetries');
  return true;
}

/** A load succeeded: the past is forgotten. */
export function succeeded(core: Core, model: string, device: string): void {
  core.backoffs.delete(backoffKey(model, device));
}

export function retryAfterMs(core: Core, backoff: Backoff): number {
  return Math.max(0, Math.ceil((backoff.untilUs - core.attendedUs) / 1_000));
}

/** What a request is told while the pause lasts. */
export function backoffRefusal(core: Core, model: string, backoff: Backoff): Refusal {
  return refusalOf(model, backoff.failures, backoff.reason, retryAfterMs(core, backoff));
}

function refusalOf(model: string, failures: number, reason: string, waitMs: number): Refusal {
  return {
    code: 'backing_off', retryAfterMs: waitMs,
    details: { what: model, failures: String(failures), retryAfterMs: String(waitMs), reason },
    text: `${model} failed ${String(failures)} time(s), last: ${reason}`,
  };
}

function entry(core: Core, model: string, device: string): Backoff {
  const key = backoffKey(model, device);
  const known = core.backoffs.get(key);
  if (known !== undefined) return known;
  if (core.backoffs.size >= backoffsMax) {
    const oldest = core.backoffs.keys().next();
    if (oldest.done !== true) core.backoffs.delete(oldest.value);
  }
  const backoff: Backoff = { failures: 0, failingSinceUs: null, failedUs: 0, untilUs: 0, reason: '', retried: false };
  core.backoffs.set(key, backoff);
  return backoff;
}

function isForgotten(core: Core, backoff: Backoff): boolean {
  return core.attendedUs >= forgottenUs(core, backoff);
}

function forgottenUs(core: Core, backoff: Backoff): number {
  return backoff.failedUs + core.options.limits.failedLoadSparesMs * 1_000;
}

function backoffKey(model: string, device: string): string {
  return `${device} ${model}`;
}
