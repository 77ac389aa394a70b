/** What goes wrong where nobody of the embedding program waits for an answer. */
import { LeaseholdError } from '../../protocol/index.js';

/** A warning of the process: printed by default, heard by `process.on('warning')`, never thrown into whatever happens to run. */
export function warn(error: LeaseholdError): void {
  const { cause } = error;
  const where = cause instanceof Error && !(cause instanceof LeaseholdError) ? `\n${cause.stack ?? ''}` : '';
  process.emitWarning(error.message, { type: 'LeaseholdWarning', code: error.code, detail: `${error.help}${where}` });
}
