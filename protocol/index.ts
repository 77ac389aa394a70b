/** The wire, without I/O: messages, schema, limits, errors, frames, sessions. Imports nothing of ours and nothing of Node. */
export * from './schema.js';
export * from './version.js';
export * from './limits.js';
export * from './errors.js';
export * from './worker-end.js';
export * from './byte-size.js';
export * from './plain-json.js';
export * from './messages/define.js';
export * from './messages/shared.js';
export * from './messages/control.js';
export * from './messages/data.js';
export * from './frame.js';
export * from './body.js';
export * from './validate.js';
export * from './session.js';
export * from './authenticate.js';
export * from './denied.js';
