/** A process that stages, or removes, what it is told from the hub that its environment names, and tells how that ended: for tests that kill it, start many, or fill its disk. */
import { LeaseholdError } from '../../../protocol/index.js';
import { Models } from '../../../src/models/models.js';

const [reference = '', root = '', order = 'pull'] = process.argv.slice(2);
const models = new Models({ root, donors: { hub: [], llama: [], ollama: [] }, limits: { stageHeartbeatMs: 100, stageHolderSilentMs: 1_000 } });
try {
  if (order === 'remove') {
    const freedBytes = await models.remove(await models.find(reference), [], new AbortController().signal);
    process.stdout.write(`${JSON.stringify({ freedBytes })}\n`);
    process.exit();
  }
  const { downloaded, downloadedBytes, path } = await models.pull(reference);
  process.stdout.write(`${JSON.stringify({ downloaded, downloadedBytes, path })}\n`);
} catch (error) {
  const { code, message, details } = LeaseholdError.from(error);
  process.stdout.write(`${JSON.stringify({ error: { code, message, details } })}\n`);
} finally {
  await models.close();
}
