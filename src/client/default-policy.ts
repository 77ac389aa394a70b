import type { ModelPolicy } from '../../protocol/index.js';

/** Nothing is pinned, nothing expires, the headroom stands. */
export const defaultPolicy: ModelPolicy = { ttlMs: null, pinned: false, exclusive: false };
