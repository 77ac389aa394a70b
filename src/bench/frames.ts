/** The two requests and the answer of one lease's life, as the `lease` benchmark sends them on every wire it compares. */
import type { ControlMessage } from '../../protocol/index.js';

export const benchBytes = 1024 * 1024;

export function requestFrame(id: number, device: string): Extract<ControlMessage, { type: 'request_vram_budget' }> {
  return {
    type: 'request_vram_budget', id, model: 'bench', device, lease: null,
    parts: [{ name: 'weights', kind: 'weights', bytes: benchBytes, upFront: true }],
    peakBytes: 0, class: 'normal', deadlineMs: 60_000, parkable: false, profilesFreeMemory: false, source: 'declared',
    policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null,
  };
}

export function releaseFrame(lease: string): Extract<ControlMessage, { type: 'release_lease' }> {
  return { type: 'release_lease', lease, cause: 'unused', failure: null };
}

export function grantFrame(id: number, device: string): Extract<ControlMessage, { type: 'grant' }> {
  return { type: 'grant', id, lease: `0123456789ab-l${String(id)}`, device, chargedBytes: 1_153_434, explain: `0123456789ab-x${String(id)}` };
}
