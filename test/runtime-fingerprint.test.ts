// R148: what a runtime is, as one hash. Everything that decides how a profile is loaded changes it, and nothing else does.
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { currentPolicy } from '../src/models/policy/policy.js';
import type { OrchestratorOptions } from '../src/orchestrator/options.js';
import { fingerprintOf, readRuntimeFacts } from '../src/runtime-fingerprint.js';
import { packageRoot } from '../src/version.js';

/** A package of a few files, as it would be installed. */
function installed(root: string): (path: string, text: string) => void {
  const write = (path: string, text: string): void => {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  write('package.json', JSON.stringify({ version: '1.2.3', dependencies: { 'node-ipc': '12.0.0' }, peerDependencies: { 'node-llama-cpp': '3.21.1' } }));
  write('node_modules/node-ipc/package.json', '{"version":"12.0.0"}');
  for (const path of ['protocol/errors.json', 'src/config/schema.json', 'src/models/policy/policy.json', 'src/models/profile/curated.json']) cpSync(join(packageRoot(), path), join(root, path));
  write('dist/bin/leasehold.js', 'a');
  return write;
}

t.test('R148: the fingerprint of a runtime', async (t) => {
  const root = join(t.testdir(), 'package');
  const write = installed(root);
  const facts = (options: OrchestratorOptions = {}) => readRuntimeFacts({ packageRoot: root, builtRoot: join(root, 'dist') }, options);
  const of = async (options?: OrchestratorOptions): Promise<string> => fingerprintOf(await facts(options));
  const first = await facts();
  const fingerprint = fingerprintOf(first);

  t.test('R147: holds the version of the policy, and the policy itself', async (t) => {
    t.equal(first.policyVersion, currentPolicy().version);
    t.not(fingerprintOf({ ...first, policyVersion: first.policyVersion + 1 }), fingerprint);
    write('src/models/policy/policy.json', '{}');
    t.not(await of(), fingerprint);
    cpSync(join(packageRoot(), 'src/models/policy/policy.json'), join(root, 'src/models/policy/policy.json'));
    t.equal(await of(), fingerprint, 'the same bytes, the same hash');
  });
  t.test('is another one with any other program, package, engine, option or version', async (t) => {
    const seen = new Set([fingerprint]);
    const another = async (what: string, options?: OrchestratorOptions): Promise<void> => {
      const now = await of(options);
      t.notOk(seen.has(now), what);
      seen.add(now);
    };
    await another('a limit', { limits: { reattachGraceMs: 1 } });
    await another('a model', { models: { m: { source: 'x.gguf' } } });
    await another('a reserve', { reserveBytes: 5 });
    await another('no engine is', { engines: [{ name: 'mine', env: { HF_TOKEN: 'a' } }] });
    write('dist/workers/llama/main.js', 'b');
    await another('a program');
    write('dist/workers/llama/main.js', 'c');
    await another('what is in it');
    write('src/models/profile/curated.json', '{"profiles":[]}');
    await another('the curated profiles');
    write('node_modules/node-llama-cpp/package.json', '{"version":"3.21.1"}');
    await another('an engine');
    write('node_modules/@node-llama-cpp/linux-x64-cuda/package.json', '{"version":"3.21.1"}');
    await another('what it is built for');
    for (const change of [{ node: '99.0.0' }, { platform: 'plan9 vax' }, { version: '1.2.4' }, { protocolVersion: 2 }]) {
      const now = fingerprintOf({ ...await facts(), ...change });
      t.notOk(seen.has(now), JSON.stringify(change));
      seen.add(now);
    }
  });
  t.test('is the same with other tests, other folders, other secrets, and options in another order', async (t) => {
    const before = await of();
    write('dist/test/x.test.js', 'x');
    write('dist/src/bench/x.js', 'x');
    write('dist/workers/x.d.ts', 'x');
    t.equal(await of(), before);
    t.equal(await of({ stateFolder: '/elsewhere', onIgnored: () => undefined }), before);
    const secret = (token: string): OrchestratorOptions => (({ engines: [{ name: 'mine', env: { HF_TOKEN: token } }] }));
    t.equal(await of(secret('one')), await of(secret('another')), 'only the name of a secret enters');
    t.equal(await of({ limits: { reattachGraceMs: 1, hubReadsMax: 2 } }), await of({ limits: { hubReadsMax: 2, reattachGraceMs: 1 } }));
    rmSync(join(root, 'dist/test'), { recursive: true });
    const moved = join(t.testdir(), 'moved');
    cpSync(root, moved, { recursive: true });
    t.equal(fingerprintOf(await readRuntimeFacts({ packageRoot: moved, builtRoot: join(moved, 'dist') }, {})), before, 'wherever it is installed');
  });
});
