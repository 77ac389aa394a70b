/** Where a broker's state lives, for commands that look for a running one. */
export { defaultStatePath, readStateFolder } from '../../broker/shell/index.js';
