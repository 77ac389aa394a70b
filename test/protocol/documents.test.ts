// What protocol/README.md says beside the generated tables, held against the sources; and its example, against a broker.
import { spawn, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { typedEnd } from '../../broker/shell/last-words.js';
import { workerExitCodes } from '../../protocol/index.js';
import { createOrchestrator } from '../../src/orchestrator/index.js';
import { root } from './support.js';

const read = (path: string) => readFileSync(join(root, path), 'utf8');
const readme = read('protocol/README.md');
const mebibyte = 1024 ** 2;

/** Names in the first column of the table whose head begins so, after `from`. */
function rowsOf(head: string, from = ''): string[] {
  const table = readme.slice(readme.indexOf(`| ${head} |`, readme.indexOf(from))).split('\n\n')[0] ?? '';
  return table.split('\n').slice(2).map((row) => /^\| `(\w+)/.exec(row)?.[1] ?? row);
}

/** Fields of an interface, in the order written. */
function fieldsOf(path: string, name: string): string[] {
  const source = read(path);
  const body = new RegExp(`interface ${name}[^{]*\\{\n([^]*?)\n\\}`).exec(source)?.[1] ?? '';
  return [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, field]) => field ?? '');
}

t.test('JSON inside messages has the fields that the sources have', async (t) => {
  const tables: readonly (readonly [head: string, path: string, name: string])[] = [
    ['`cards[]`', 'broker/core/view.ts', 'CardView'], ['`leases[]`', 'broker/core/view.ts', 'LeaseView'], ['`waiting[]`', 'broker/core/view.ts', 'WaiterView'],
    ['`processes[]`', 'broker/core/view.ts', 'ProcessView'], ['`victims[]`', 'broker/core/explain.ts', 'ExplainedVictim'],
  ];
  for (const [head, path, name] of tables) {
    t.ok(fieldsOf(path, name).length > 3, `${name} is found`);
    t.strictSame(rowsOf(head), fieldsOf(path, name), name);
  }
  t.strictSame(rowsOf('field', '### Explain records'), fieldsOf('broker/core/explain.ts', 'ExplainRecord'));
  const whole = /`\{("bootId"[^`]*)\}`/.exec(readme)?.[1]?.split(', ').map((name) => name.slice(1, -1));
  t.strictSame(whole, [...fieldsOf('broker/core/view.ts', 'LedgerView'), ...fieldsOf('src/orchestrator/types.ts', 'LedgerState')]);
});

t.test('every event that the broker publishes is listed with the fields that it has', async (t) => {
  const rows = /<!-- events -->\n([^]*?)<!-- end of events -->/.exec(readme)?.[1]?.trim().split('\n').slice(2) ?? [];
  const listed = new Map(rows.map((row) => {
    const [, name = '', fields = ''] = row.split('|');
    return [name.trim().slice(1, -1), [...fields.matchAll(/`(\w+)`/g)].map(([, field]) => field ?? '')];
  }));
  const published = new Map<string, Set<string>>([
    ['obituary', new Set(['generation', 'how', 'lastLines', 'brokerEnds', 'silentMs'])],
    ['loop_blocked', new Set(['role', 'generation', 'blockedMs', 'times'])],
    ['state_restored', new Set(['what', 'path'])], ['state_lost', new Set(['what', 'path', 'code', 'reason'])],
  ]);
  const ofShell = [...published.keys()];
  const names = [...(/type PublishedName =([^;]*);/.exec(read('broker/core/effects.ts'))?.[1] ?? '').matchAll(/'(\w+)'/g)].map(([, name]) => name ?? '');
  for (const file of readdirSync(join(root, 'broker/core'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))) {
    for (const [, which = '', fields = ''] of read(`broker/core/${file}`).matchAll(/publish\(core, ([^{]*)\{([^}]*)/g)) {
      const keys = [...fields.matchAll(/(?:^|,)\s*(\w+)(?=\s*(?:[:,]|$))/g)].map(([, key]) => key ?? '');
      for (const [, name = ''] of which.matchAll(/'(\w+)'/g)) if (names.includes(name)) published.set(name, new Set([...published.get(name) ?? [], ...keys]));
    }
  }
  t.strictSame([...published.keys()].sort(), [...names, ...ofShell].sort(), 'each is published somewhere');
  const shell = readdirSync(join(root, 'broker/shell')).map((name) => read(`broker/shell/${name}`)).join('');
  for (const name of ofShell) t.match(shell, new RegExp(`ublish\\('${name}', `));
  t.strictSame([...listed.keys()].sort(), [...published.keys()].sort());
  for (const [name, fields] of published) t.strictSame([...listed.get(name) ?? []].sort(), [...fields].sort(), name);
});

t.test('how a worker ends: the exit codes are those of the source, and the line in the example is understood', async (t) => {
  const table = readme.slice(readme.indexOf('| code | a worker ends with it when')).split('\n\n')[0] ?? '';
  t.strictSame([...table.matchAll(/^\| (\d+) \|/gm)].map(([, code]) => Number(code)), Object.values(workerExitCodes));
  t.match(table, new RegExp(`^\\| ${String(workerExitCodes.engineHung)} \\|.*exits\\.engine_hung`, 'm'));
  const line = /^leasehold-error .*$/m.exec(readme)?.[0] ?? '';
  t.match(typedEnd([line]), { code: 'engine_missing', message: /^Engine vllm is not installed: No module named 'vllm'/ });
});

t.test('the proofs that are worked out are right', async (t) => {
  const worked = [...readme.matchAll(/^(spawn:b-w1|role:\w+) +→ ([0-9a-f]{64})$/gm)];
  t.strictSame(worked.map(([, text]) => text), ['spawn:b-w1', 'role:holder', 'role:client']);
  for (const [, text = '', proof] of worked) t.equal(proof, createHmac('sha256', Buffer.alloc(32)).update(text).digest('hex'), text);
});

t.test('the least that a holder sends is what the page says: it leases, holds, keeps its bytes while it needs them, and gives them back', async (t) => {
  const sketch = /### The least that a holder sends\n[^]*?```python\n([^]*?)```/.exec(readme)?.[1] ?? '';
  const stateFolder = mkdtempSync(join(tmpdir(), 'lh-least-'));
  const python = (...args: string[]) => spawn('python3', ['-S', ...args], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, PYTHONPATH: join(root, 'protocol/examples'), PYTHONDONTWRITEBYTECODE: '1' } });
  if ((spawnSync('python3', ['--version']).error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT') {
    t.comment('no python3 here: not run');
    return;
  }
  const orchestrator = await createOrchestrator({ broker: 'own', stateFolder, devices: ['sim:12MiB'] });
  t.teardown(async () => {
    await orchestrator.close();
    rmSync(stateFolder, { recursive: true });
  });
  const holder = python('-c', sketch, stateFolder);
  t.teardown(() => holder.kill('SIGKILL'));
  const ended = once(holder, 'close');
  let err = '';
  holder.stderr.setEncoding('utf8').on('data', (text: string) => { err += text; });
  const states: string[] = [];
  for await (const { name } of orchestrator.events()) {
    states.push(name);
    if (name === 'loaded') {
      t.match((await orchestrator.ledger()).leases, [{ model: 'the least', state: 'resident', residentBytes: 8 * mebibyte }]);
      t.equal(await orchestrator.evict('the least'), 8 * mebibyte, 'it is asked, says that it is busy, and is waited for');
    }
    if (name === 'released') break;
  }
  t.strictSame([await ended, err], [[0, null], '']);
  t.strictSame(['granted', 'loaded', 'released'].filter((name) => !states.includes(name)), []);
  t.strictSame((await orchestrator.ledger()).leases, []);
});

t.test('the holder in Python leases bytes, shows up with its pid, and makes room when it is asked to', async (t) => {
  const example = join(root, 'protocol/examples/holder.py');
  const compiled = spawnSync('python3', ['-S', '-c', 'import ast, sys; ast.parse(open(sys.argv[1]).read())', example], { encoding: 'utf8' });
  const missing = (compiled.error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
  t.ok(missing || compiled.status === 0, compiled.stderr);
  if (missing) {
    t.comment('no python3 here: not run');
    return;
  }
  const stateFolder = mkdtempSync(join(tmpdir(), 'lh-py-'));
  for (const given of [[], [stateFolder], [stateFolder, '12MiB'], [stateFolder, '0']]) {
    t.match(spawnSync('python3', ['-S', example, ...given], { encoding: 'utf8' }), { status: 1, stderr: /^usage: holder\.py STATE-FOLDER BYTES\n[^\n]*\n$/ }, given.join(' '));
  }
  t.match(spawnSync('python3', ['-S', example, stateFolder, '1'], { encoding: 'utf8' }), { status: 1, stderr: /^no broker answers in [^\n]*\n$/ });
  const orchestrator = await createOrchestrator({
    broker: 'own', stateFolder, devices: ['sim:12MiB'],
    models: { big: { engine: 'simulated', source: `sim:${JSON.stringify({ text: 'room at last', weightsBytes: 9 * mebibyte })}` } },
  });
  t.teardown(async () => {
    await orchestrator.close();
    rmSync(stateFolder, { recursive: true });
  });
  const holder = spawn('python3', ['-S', example, stateFolder, String(8 * mebibyte)], { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => holder.kill('SIGKILL'));
  const ended = once(holder, 'close');
  const said = { out: '', err: '' };
  holder.stderr.setEncoding('utf8').on('data', (text: string) => { said.err += text; });
  holder.stdout.setEncoding('utf8').on('data', (text: string) => { said.out += text; });
  while (!said.out.includes('"holds"') && holder.exitCode === null) await Promise.race([once(holder.stdout, 'data'), ended]);
  t.equal(said.err, '');
  t.match(await orchestrator.ledger(), {
    leases: [{ model: 'example-holder', state: 'resident', residentBytes: 8 * mebibyte }], holders: [{ pid: holder.pid }], simulatedCards: [{ usedBytes: 8 * mebibyte }],
  });
  t.match(await orchestrator.generate('big', 'hello').result(), { text: 'room at last' });
  const [code] = await ended as [number | null];
  t.strictSame([code, said.err], [0, '']);
  t.match(said.out, /"holds"[^]*"gone"/);
  t.match(await orchestrator.ledger(), { leases: [{ state: 'resident', residentBytes: 9.5 * mebibyte }], counters: { evictions: 1 }, simulatedCards: [{ oomRefusals: 0 }] });
});
