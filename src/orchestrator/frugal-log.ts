/** The bound of the broker's log, for what the command tells in words. */
export { FrugalLog } from '../../broker/shell/index.js';
