/** After a failed load or spawn: a pause by model and card, doubled each time (B79). */
import { inMs } from '../clock.js';
import type { Refusal } from './deny.js';
import { count, publish } from '../report.js';
import type { Backoff, Core } from '../state.js';

const backoffsMax = 16_384;

/** The failure that still forbids an attempt, or null. */
export function backingOff(core: Core, model: string, device: string): Backoff | null {
  const backoff = core.backoffs.get(backoffKey(model, device));
  return backoff !== undefined && backoff.untilUs > core.attendedUs ? backoff : null;
}

/**
 * An attempt failed. The first pause is never shorter than what the attempt
 * cost the card, so that a load which fails slowly cannot keep it busy.
 */
export function failed(core: Core, model: string, device: string, reason: string, costMs: number): void {
  const backoff = entry(core, model, device);
  backoff.failures++;
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
  const waitMs = retryAfterMs(core, backoff);
  return {
    code: 'backing_off', retryAfterMs: waitMs,
    details: { what: model, failures: String(backoff.failures), retryAfterMs: String(waitMs), reason: backoff.reason },
    text: `${model} failed ${String(backoff.failures)} time(s), last: ${backoff.reason}`,
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
  const backoff: Backoff = { failures: 0, untilUs: 0, reason: '', retried: false };
  core.backoffs.set(key, backoff);
  return backoff;
}

function backoffKey(model: string, device: string): string {
  return `${device} ${model}`;
}
