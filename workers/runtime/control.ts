/** The runtime's view of its control channel: what it needs, so that tests can stand in for it. */
import type { ControlMessage } from '../../protocol/index.js';
import type { Channel } from '../../protocol/node/index.js';

export type ControlChannel = Pick<Channel<'control'>, 'open' | 'send' | 'request' | 'nextId' | 'unsentBytes'>;
export type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;
