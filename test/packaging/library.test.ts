/** The library as an app gets it: what is packed, installed beside its dependencies, and imported by name. */
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { estimate, type EstimateAnswer, type LeaseholdError } from '../../src/index.js';
import { plainConfig } from '../fixtures/public-shapes.js';
import { safetensorsBytes } from '../fixtures/safetensors.js';
import { root } from '../tidy/tree.js';

const app = realpathSync(mkdtempSync(join(tmpdir(), 'leasehold-packed-')));
t.teardown(() => { rmSync(app, { recursive: true, force: true }); });

/** Its dependencies are those of the checkout; the package itself is what the archive holds. */
function install(): void {
  const packed = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--offline', '--pack-destination', app], { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const [{ filename }] = JSON.parse(packed) as [{ readonly filename: string }];
  execFileSync('tar', ['-xzf', filename], { cwd: app });
  mkdirSync(join(app, 'node_modules'));
  for (const name of readdirSync(join(root, 'node_modules')).filter((each) => !each.startsWith('.'))) symlinkSync(join(root, 'node_modules', name), join(app, 'node_modules', name), 'dir');
  renameSync(join(app, 'package'), join(app, 'node_modules', 'leasehold'));
}

/** The lines that a program of the app prints, each JSON. */
async function run(name: string, program: string): Promise<readonly unknown[]> {
  writeFileSync(join(app, name), program);
  const { stdout } = await promisify(execFile)(process.execPath, [name, join(app, 'state')], { cwd: app, env: { PATH: process.env['PATH'], HOME: app }, timeout: 120_000 });
  return stdout.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as unknown);
}

t.test('from the packed package an app estimates a model before any card is touched, and from then on by what its loads have taken', { timeout: 240_000 }, async (t) => {
  install();
  const [before, chargedBytes, after, elsewhere] = await run('app.mjs', `
    import { createOrchestrator, estimate } from 'leasehold';
    const stateFolder = process.argv[2];
    const tell = (value) => { console.log(JSON.stringify(value)); };
    const request = { context: 2_048, stateFolder };
    tell(await estimate('tiny-facts', request));
    const leasehold = await createOrchestrator({ devices: ['sim:64MiB'], stateFolder, models: { facts: { source: 'tiny-facts', contextTokens: 2_048 } } });
    await leasehold.generate('facts', 'What is the capital of France?').result();
    tell((await leasehold.ledger()).leases[0].chargedBytes);
    await leasehold.close();
    tell(await estimate('tiny-facts', request));
    tell(await estimate('tiny-facts', { ...request, stateFolder: stateFolder + '-of-another' }));
  `) as [EstimateAnswer, number, EstimateAnswer, EstimateAnswer];
  t.match(before, { estimate: { source: 'estimated', options: { backend: 'llama', contextTokens: 2_048, parallel: 1 }, cards: [{ device: null }] }, learned: [] });
  t.match(after, { estimate: { source: 'learned', cards: [{ weights: { how: /^learned by 1 load on simulated card/ } }] }, learned: [{ engine: 'llama', loads: 1 }] });
  t.equal(chargedBytes, Math.ceil((after.estimate.cards[0]?.total.bytes ?? 0) * 11 / 10), 'what a load is charged with');
  t.equal(elsewhere.estimate.source, 'estimated');
});

t.test('estimate(model, { context, parallel, kvDtype, backend, devices })', async (t) => {
  const folder = join(app, 'model');
  mkdirSync(folder);
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...plainConfig, architectures: ['LlamaForCausalLM'] }));
  writeFileSync(join(folder, 'model.safetensors'), safetensorsBytes({ 'model.layers.0.mlp.up_proj.weight': { dtype: 'BF16', shape: [400_000], data_offsets: [0, 800_000] } }));
  const of = (request: Parameters<typeof estimate>[1] = {}, model: Parameters<typeof estimate>[0] = folder): Promise<EstimateAnswer> => estimate(model, { stateFolder: join(app, 'none'), askEngine: false, ...request });
  const kv = async (request: Parameters<typeof estimate>[1]): Promise<number> => (await of(request)).estimate.cards.reduce((sum, card) => sum + card.kv.bytes, 0);
  const plain = await kv({ context: 1_000 });
  t.ok(plain > 0);
  t.equal(await kv({ context: 2_000 }), 2 * plain);
  t.equal(await kv({ context: 1_000, parallel: 3 }), 3 * plain);
  t.equal(await kv({ context: 1_000, kvDtype: 'fp8', backend: 'vllm' }), await kv({ context: 1_000, backend: 'vllm' }) / 2);
  t.match((await of()).estimate.options, { backend: 'transformers' });
  const two = await of({ context: 1_000, backend: 'vllm', devices: ['GPU-a', 'GPU-b'] });
  t.match(two.estimate, { options: { ranks: 2 }, cards: [{ rank: 0, device: 'GPU-a' }, { rank: 1, device: 'GPU-b' }] });
  t.strictSame((await of({ context: 1_000, backend: 'vllm', devices: 2 })).estimate.cards, two.estimate.cards.map((card) => ({ ...card, device: null })));
  t.match((await of({ context: 256, devices: ['cpu'] }, 'tiny-facts')).estimate, { options: { onCard: false, ranks: 1 }, cards: [{ device: 'cpu' }] });
  t.match((await of({ context: 256 }, { id: 'tiny-facts' })).estimate.options, { onCard: true });
  const refused = (request: Parameters<typeof estimate>[1], model?: string): Promise<Pick<LeaseholdError, 'code' | 'message'>> => of(request, model).then(() => { throw new Error('it was not refused'); }, (error: unknown) => error as LeaseholdError);
  for (const devices of [0, 65, 1.5, [], ['GPU-a', 'GPU-a'], ['cpu', 'GPU-a']]) t.match(await refused({ devices }), { code: 'input_invalid', message: /^devices: / }, JSON.stringify(devices));
  t.match(await refused({ devices: 2 }, 'tiny-facts'), { code: 'input_invalid', message: /a llama worker sees one card/ });
  t.match(await refused({ backend: 'llama' }), { code: 'input_invalid' });
  t.match(await refused({ context: -1 }), { code: 'input_invalid' });
  t.match(await refused({ kvDtype: 'q9' }), { code: 'input_invalid', message: /kvDtype/ });
  t.match(await refused({}, './nothing.gguf'), { code: 'model_invalid' });
});
