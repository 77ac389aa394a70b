// Random parts are killed under load: npm run -s kills -- [--kills N] [--seed N] [--json]
import { parseArgs } from 'node:util';
import { runKills } from './kills.js';

const { values } = parseArgs({ options: { kills: { type: 'string', default: '100' }, seed: { type: 'string', default: '1' }, json: { type: 'boolean', default: false } } });
const report = await runKills({
  kills: Number(values.kills), seed: Number(values.seed),
  onKill: (done) => { if (!values.json && done % 10 === 0) process.stderr.write(`${String(done)} killed\n`); },
});
process.stdout.write(values.json ? `${JSON.stringify(report)}\n` : `${JSON.stringify(report, null, 2)}\n`);
