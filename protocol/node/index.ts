/** The wire on Node: sockets, memory pairs, the codec, channels, proofs. */
export * from './anteroom.js';
export * from './authenticate.js';
export * from './channel.js';
export type * from './channel-types.js';
export * from './clock.js';
export * from './codec.js';
export * from './held-total.js';
export * from './memory.js';
export * from './model-key.js';
export * from './peer-credentials.js';
export * from './socket-path.js';
export * from './stream.js';
export * from './transport.js';
export * from './wire-error.js';
export * from './line.js';
export * from './orders.js';
