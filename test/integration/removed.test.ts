/** The link between what is stored and what is loaded: files of a model that an engine has are not removed from under it. */
import { readFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { stagedSource } from '../../src/models/staged.js';
import { openersOf } from '../../src/models/store/openers.js';
import { tinyModels } from '../../workers/models/index.js';
import { large } from '../models/hub/server.js';
import { scene, temporary } from '../models/hub/scene.js';
import { open, until, workerPid } from './support.js';

const reference = 'leasehold/tiny-facts-GGUF';

t.test('B55: the files of a model that is loaded are not removed, busy or idle, whatever the caller knows; afterwards it is cleanly not there', { timeout: 120_000 }, async (t) => {
  const here = await scene(t);
  here.hub.publish(reference, [large('tiny-facts-F16.gguf', readFileSync(tinyModels['tiny-facts'].ggufPath))]);
  const { path } = await here.pull(reference);
  const env = { LEASEHOLD_MODELS: here.root };
  const source = await stagedSource(reference, env);
  const orchestrator = await open(t, { devices: ['sim:64MiB'], models: { facts: { source, contextTokens: 512 } } });
  const model = await here.models.find(reference);
  const remove = (): Promise<LeaseholdError | number> => here.models.remove(model, [], new AbortController().signal).catch((error: unknown) => LeaseholdError.from(error));

  const stop = new AbortController();
  const stream = orchestrator.generate('facts', 'What is the capital of France?', { maxTokens: 400, signal: stop.signal });
  const tokens = stream[Symbol.asyncIterator]();
  await tokens.next();
  const pid = await workerPid(orchestrator, 'facts');
  t.match(await remove(), { code: 'model_in_use', message: new RegExp(`process ${String(pid)}`) }, 'busy');
  stop.abort();
  await tokens.next().catch(() => undefined);
  t.match(await remove(), { code: 'model_in_use' }, 'idle');
  t.match(await here.models.find(reference), { missing: null }, 'nothing of it has gone');
  t.match((await orchestrator.generate('facts', 'What is the capital of France?').result()).text, /Paris/, 'and it goes on serving');

  await orchestrator.evict('facts');
  await until('the engine to have let go of it', async () => (await openersOf([source])).length === 0);
  t.equal(await remove(), readFileSync(tinyModels['tiny-facts'].ggufPath).length);
  t.match(await orchestrator.generate('facts', 'again').result().catch((error: unknown) => error), { code: 'model_invalid', message: /no such file/ });
  await t.rejects(stagedSource(reference, env), { code: 'profile_unknown', help: /leasehold pull/ });
  t.match(await orchestrator.ledger(), { leases: [] });
  t.match(path, here.root);
});

t.test('B55: whoever has a file open is found, and one who has another is not', async (t) => {
  const folder = temporary(t);
  const [held, other] = [join(folder, 'held'), join(folder, 'other')];
  const child = spawn('sh', ['-c', 'echo x > "$1"; echo y > "$2"; exec 7<"$1"; echo ready; read line', 'sh', held, other], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => { child.kill('SIGKILL'); });
  await once(child.stdout, 'data');
  t.strictSame(await openersOf([held]), [child.pid]);
  t.strictSame(await openersOf([other]), []);
  t.strictSame(await openersOf([]), []);
  const closed = once(child, 'close');
  child.stdin.end();
  await closed;
  t.strictSame(await openersOf([held]), []);
});
