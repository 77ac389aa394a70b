/** The runtime's view of its control channel: what it needs, so that tests can stand in for it. */
import type { ControlMessage } from '../../protocol/index.js';
import type { Line } from '../../protocol/node/index.js';

export type ControlChannel = Pick<Line, 'open' | 'send' | 'request' | 'ask' | 'reattached' | 'nextId' | 'unsentBytes'>;
export type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;
