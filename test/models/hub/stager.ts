/** A process that stages what it is told from the hub that its environment names: for tests that kill it, or start many. */
import { Models } from '../../../src/models/models.js';

const [reference = '', root = ''] = process.argv.slice(2);
const models = new Models({ root, donors: { hub: [], llama: [], ollama: [] }, limits: { stageHeartbeatMs: 100, stageHolderSilentMs: 1_000 } });
const { downloaded, downloadedBytes, path } = await models.pull(reference);
await models.close();
process.stdout.write(`${JSON.stringify({ downloaded, downloadedBytes, path })}\n`);
