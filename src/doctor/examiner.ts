/** `node examiner.js SETUP`: carries checks out and says what they find, a line of JSON each. Something it asks may hang it or end it: whoever started it reckons with that. */
import { allChecks } from './all-checks.js';
import { examine } from './examine.js';
import { aliveIntervalMs, type ExaminerMessage, type ExaminerSetup } from './examiner-messages.js';
import { createScene } from './scene.js';

const { flags, checks } = JSON.parse(process.argv[2] ?? '') as ExaminerSetup;
const say = (message: ExaminerMessage): void => void process.stdout.write(`${JSON.stringify(message)}\n`);

process.stdout.on('error', () => process.exit());
setInterval(() => { say({ say: 'alive' }); }, aliveIntervalMs).unref();
const scene = createScene({ flags });
await examine(allChecks.filter(({ id }) => checks.includes(id)), scene, {
  onBegun: (id) => { say({ say: 'begun', id }); },
  onFound: (id, findings) => { say({ say: 'found', id, findings }); },
});
await scene.close();
// What hangs in a thread would keep this process; whoever reads this ends it.
process.stdout.write(`${JSON.stringify({ say: 'done' } satisfies ExaminerMessage)}\n`, () => process.exit());
