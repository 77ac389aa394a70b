// What the store remembers of a model: nobody edits it, swaps it or leads it elsewhere and has it believed.
import { copyFileSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { LeaseholdError, defaultLimits } from '../../protocol/index.js';
import { askEstimate } from '../../src/models/estimate/ask.js';
import { sealed } from '../../src/models/profile/seal.js';
import type { ProfileManifest } from '../../src/models/profile/profile.js';
import type { Pulled } from '../../src/models/models.js';
import { parseHubReference } from '../../src/models/reference.js';
import { stagedSource } from '../../src/models/staged.js';
import { gguf } from './hub/models.js';
import { large } from './hub/server.js';
import { oneFile, scene, temporary, type Scene } from './hub/scene.js';

type Stored = ProfileManifest & { readonly seal?: string };

const manifestAt = (path: string): Stored => JSON.parse(readFileSync(path, 'utf8')) as Stored;
const write = (path: string, json: unknown): void => { writeFileSync(path, JSON.stringify(json)); };
const reasonOf = (promise: Promise<unknown>): Promise<LeaseholdError> => promise.then(() => { throw new Error('it was not refused'); }, (error: unknown) => LeaseholdError.from(error));

interface Ways {
  /** Everything that leads from what is stored to a file that an engine is given. */
  readonly refusals: () => Promise<readonly LeaseholdError[]>;
}

function waysTo(here: Scene, { profile }: Pick<Pulled, 'profile'>, reference: string): Ways {
  const env = { LEASEHOLD_MODELS: here.root, HF_ENDPOINT: here.hub.endpoint };
  const question = { model: reference, contextTokens: 512, projector: 'none', draft: null, declaredBytes: null, askEngine: false } as const;
  return {
    refusals: () => Promise.all([
      here.models.find(profile.id), here.models.find(reference), here.models.runnable(parseHubReference(reference)), stagedSource(reference, env),
      askEstimate(question, { env, cwd: '/', limits: defaultLimits }), askEstimate({ ...question, model: profile.id }, { env, cwd: '/', limits: defaultLimits }),
    ].map(reasonOf)),
  };
}

async function pulledScene(t: Test): Promise<{ readonly here: Scene; readonly pulled: Pulled; readonly stored: Stored; readonly refusals: Ways['refusals'] }> {
  const here = await scene(t);
  here.hub.publish('o/m', oneFile().files);
  const pulled = await here.pull('o/m');
  here.fetched();
  return { here, pulled, stored: manifestAt(pulled.manifestPath), refusals: waysTo(here, pulled, 'o/m').refusals };
}

t.test('R153 R246: a manifest that says that it was reviewed is not believed, and leads to no file', async (t) => {
  const { here, pulled, stored, refusals } = await pulledScene(t);
  writeFileSync(join(here.root, '..', 'evil.gguf'), gguf());
  const evil = { ...stored.profile, source: 'curated', weight_files: ['../../../../../evil.gguf'], estimated_vram_gb: 0.1, max_context_tokens: 1 };
  for (const profile of [evil, { ...evil, weight_files: stored.profile.weight_files }, { ...stored.profile, source: 'curated' }]) {
    write(pulled.manifestPath, { ...stored, profile });
    for (const error of await refusals()) t.match(error, { code: 'profile_tampered', details: { path: pulled.manifestPath }, help: /delete that file and pull the model again/ });
    write(pulled.manifestPath, sealed({ ...stored, seal: undefined, profile }));
    for (const error of await refusals()) t.match(error, { code: 'profile_invalid', message: /source must be generated/ }, 'sealed anew');
  }
  // Nor a path that leads out of the folder without a word of where it comes from.
  write(pulled.manifestPath, sealed({ ...stored, seal: undefined, profile: { ...stored.profile, weight_files: ['../x.gguf'] } }));
  for (const error of await refusals()) t.match(error, { code: 'profile_invalid', message: /weight_files must be/ });
});

t.test('R158 R280: an edited manifest is listed as a fault, refused by everything, and pulled anew once its file is gone', async (t) => {
  const { here, pulled, stored, refusals } = await pulledScene(t);
  const edits: readonly object[] = [
    { security_scan_complete: false }, { requested_reference: 'o/other' }, { resolved_at_unix: 1 }, { schema_version: 3 }, { compatibility_policy_version: 2 }, { note: 'x' },
    { profile: { ...stored.profile, display_name: 'another' } }, { profile: { ...stored.profile, compatibility_policy_version: 2 } }, { seal: '0'.repeat(64) },
  ];
  for (const edit of edits) {
    write(pulled.manifestPath, { ...stored, ...edit });
    for (const error of await refusals()) t.match(error, { code: 'profile_tampered', help: /delete that file and pull the model again/ }, JSON.stringify(edit));
    const faults: LeaseholdError[] = [];
    t.strictSame(await here.models.list((error) => { faults.push(error); }), []);
    t.match(faults, [{ code: 'profile_tampered' }]);
    t.match(await here.refused('o/m'), { code: 'profile_tampered' }, 'nor is it written over');
  }
  write(pulled.manifestPath, sealed({ ...stored, seal: undefined, profile: { ...stored.profile, display_name: 'another' } }));
  t.match(await here.refused('o/m'), { code: 'profile_collision', help: /delete that file and pull the model again/ }, 'R158');
  rmSync(pulled.manifestPath);
  for (const error of (await refusals()).slice(0, 4)) t.match(error, { code: 'profile_unknown', help: /leasehold pull/ });
  t.match(await here.pull('o/m'), { downloaded: false, manifestCreated: true });
  t.strictSame(here.fetched(), [], 'what was downloaded stayed');
  t.match(await here.models.find('o/m'), { missing: null });
  writeFileSync(pulled.manifestPath, `\n${JSON.stringify(Object.fromEntries(Object.entries(manifestAt(pulled.manifestPath)).reverse()), null, 7)}\n`);
  t.match(await here.models.find('o/m'), { missing: null }, 'the order of its keys, and white space, mean nothing');
  t.match(await here.pull('o/m'), { manifestCreated: false });
  await t.rejects(here.models.store.find('hf-../../x'), { code: 'profile_unknown' }, 'R246: an id is no path');
});

t.test('R153: another model\'s manifest, or what was remembered of another reference, does not run that model', async (t) => {
  const { here, pulled, stored, refusals } = await pulledScene(t);
  here.hub.publish('o/other', [large('y-Q4_K_M.gguf', oneFile(4_000).content)]);
  const other = await here.pull('o/other');
  copyFileSync(other.manifestPath, pulled.manifestPath);
  for (const error of await refusals()) t.match(error, { code: 'profile_tampered', details: { profile: pulled.profile.id } });
  write(pulled.manifestPath, stored);
  const { layout } = here.models.store;
  const [own, others] = [layout.reference('o/m', 'o/m'), layout.reference('o/other', 'o/other')];
  const record = readFileSync(own, 'utf8');
  copyFileSync(others, own);
  const byReference = (): Promise<LeaseholdError> => reasonOf(stagedSource('o/m', { LEASEHOLD_MODELS: here.root }));
  t.match(await byReference(), { code: 'profile_invalid', message: /of another reference/, help: /Pull the model again/ });
  write(own, { ...JSON.parse(record) as object, profile_id: other.profile.id });
  t.match(await byReference(), { code: 'profile_tampered' });
  for (const text of ['', '{', '[]', JSON.stringify({ reference: 'o/m', profile_id: pulled.profile.id })]) {
    writeFileSync(own, text);
    t.match(await byReference(), { code: 'profile_invalid', help: /pull the model again/i }, text);
  }
  await here.pull('o/m');
  t.equal(await stagedSource('o/m', { LEASEHOLD_MODELS: here.root }), join(pulled.path, 'x-Q8_0.gguf'), 'and a pull puts it right');
});

t.test('R246: what the marker leaves out, or a link leads to, is not loaded', async (t) => {
  const { here, pulled, refusals } = await pulledScene(t);
  const { layout } = here.models.store;
  const marker = layout.marker({ repository: 'o/m', commit: pulled.profile.revision });
  const text = readFileSync(marker, 'utf8');
  const file = join(pulled.path, 'x-Q8_0.gguf');
  write(marker, { ...JSON.parse(text) as object, profiles: { [pulled.profile.id]: [] } });
  t.match(await here.models.find('o/m'), { missing: 'x-Q8_0.gguf is not there' });
  t.match(await reasonOf(here.models.runnable(parseHubReference('o/m'))), { code: 'not_staged' });
  writeFileSync(marker, text);
  const outside = temporary(t);
  renameSync(file, join(outside, 'x.gguf'));
  symlinkSync(join(outside, 'x.gguf'), file);
  t.match(await reasonOf(stagedSource('o/m', { LEASEHOLD_MODELS: here.root })), { code: 'not_staged', message: /x-Q8_0.gguf is not there/ });
  renameSync(pulled.path, join(outside, 'snapshot'));
  symlinkSync(join(outside, 'snapshot'), pulled.path);
  for (const error of await refusals()) t.match(error, { code: 'link_refused' });
});

t.test('a manifest from before there were seals says to pull again, and that costs no download', async (t) => {
  const { here, pulled, stored, refusals } = await pulledScene(t);
  const { seal, ...old } = stored;
  t.match(seal, /^[0-9a-f]{64}$/);
  write(pulled.manifestPath, old);
  for (const error of await refusals()) t.match(error, { code: 'profile_invalid', message: /no seal/, help: 'Pull the model again: leasehold pull. What is downloaded is kept.' });
  write(pulled.manifestPath, { ...old, profile: { ...old.profile, max_images: 9 } });
  t.match(await here.refused('o/m'), { code: 'profile_tampered' }, 'one that was edited is not written over');
  write(pulled.manifestPath, { ...old, security_scan_complete: false });
  t.match(await here.pull('o/m'), { downloaded: false, manifestCreated: true });
  t.strictSame(here.fetched(), []);
  t.match(manifestAt(pulled.manifestPath), { ...old, resolved_at_unix: Number, seal: String }, 'what nothing vouched for was found out anew');
  t.match(await here.models.find('o/m'), { missing: null });
  mkdirSync(join(here.root, 'llm_generated_profiles', 'not-an-id'));
  t.equal((await here.models.list()).length, 1);
});

t.test('R179: a file system on which a name is made twice, or a rename does not replace, is refused before anything is asked for or left there', async (t) => {
  const whole = { open: fs.open, rename: fs.rename, writeFile: fs.writeFile };
  const restore = (): void => {
    Object.assign(fs, whole);
    syncBuiltinESMExports();
  };
  t.teardown(restore);
  const isProbe = (path: unknown): boolean => String(path).includes('.probe-');
  const kinds: readonly (readonly [string, Partial<typeof whole>, RegExp])[] = [
    ['as some network file systems do', { open: (path, flags, mode) => whole.open(path, flags === 'wx' && isProbe(path) ? 'w' : flags, mode) }, /makes a file that exists already/],
    ['a rename that does nothing', { rename: async () => undefined }, /does not replace a file by renaming another/],
    ['a rename that copies', { rename: async (from, to) => { await fs.copyFile(from, to); } }, /leaves a file under the name that it had before/],
    ['a rename that never replaces', { rename: async () => { throw Object.assign(new Error('EEXIST: file already exists'), { code: 'EEXIST' }); } }, /EEXIST/],
    ['no exclusive creation', { writeFile: async () => { throw Object.assign(new Error('ENOTSUP: operation not supported'), { code: 'ENOTSUP' }); } }, /ENOTSUP/],
  ];
  for (const [what, stubs, message] of kinds) {
    const here = await scene(t);
    here.hub.publish('o/m', oneFile().files);
    Object.assign(fs, stubs);
    syncBuiltinESMExports();
    t.match(await here.refused('o/m'), { code: 'store_unusable', message, help: /local file system/ }, what);
    restore();
    t.strictSame([here.fetched(), readdirSync(here.root)], [[], []], what);
    t.match(await here.pull('o/m'), { downloaded: true }, 'on a whole one it is staged');
    t.notOk(readdirSync(here.root).some((name) => name.startsWith('.probe')), 'no trace of the probe');
  }
});
