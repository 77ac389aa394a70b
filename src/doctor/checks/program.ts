/** What runs: Node, the platform, this package, and what it depends on. */
import { access, readFile, readdir, stat } from 'node:fs/promises';
import { arch, release } from 'node:os';
import { join } from 'node:path';
import { deviceNotes } from '../../../broker/devices/index.js';
import { supervisorNotes } from '../../../broker/supervisor/index.js';
import { formatMs } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { fingerprintOf, readRuntimeFacts } from '../../runtime-fingerprint.js';
import { assess, notApplicable, ok, problem, warning, type Found } from '../finding.js';
import { mountOf, readMounts } from '../machine/mounts.js';
import type { Scene } from '../scene.js';

interface Package {
  readonly name: string;
  readonly version: string;
  readonly engines: { readonly node: string };
  readonly dependencies: Readonly<Record<string, string>>;
}

const nodeCheck: Check = {
  id: 'program.node',
  title: 'Node.js',
  async run(scene) {
    const { engines } = await readPackage(scene);
    return judgeNode(process.versions, engines.node, scene.machine.env['NODE_OPTIONS'] ?? '');
  },
};

/** `wanted` is `>=` and a version, as in package.json. `options`: NODE_OPTIONS, which every worker inherits. */
export function judgeNode(versions: NodeJS.ProcessVersions, wanted: string, options = ''): Found {
  const electron = versions['electron'] === undefined ? '' : `, in Electron ${versions['electron']}`;
  const found = `${versions.node}${electron}, libuv ${versions.uv}${options === '' ? '' : `, NODE_OPTIONS ${options}`}`;
  const least = wanted.replace('>=', '');
  return assess(found, [
    isOlder(versions.node, least) ? { verdict: 'problem', says: '', advice: `Install Node.js ${least} or newer: nothing is tested below it.` } : null,
    /--inspect|--require|--import|-r /.test(options) ? { verdict: 'warning', says: 'every worker and helper inherits that', advice: 'Unset NODE_OPTIONS for the broker: a debugger\'s port is for one process, and what is loaded into each costs each its start.' } : null,
  ]);
}

const platformCheck: Check = {
  id: 'program.platform',
  title: 'Platform',
  async run({ machine: { platform } }) {
    const header = (process.report as { getReport(): unknown } | undefined)?.getReport() as { readonly header?: { readonly glibcVersionRuntime?: string } } | undefined;
    const libc = header?.header?.glibcVersionRuntime;
    const found = `${platform.name} ${arch()}, kernel ${release()}${libc === undefined ? '' : `, glibc ${libc}`}${platform.wsl ? ', under Windows' : ''}`;
    const lacks = [...deviceNotes(platform), ...supervisorNotes(platform.name)].map(({ details }) => details['what'] ?? '');
    if (lacks.length === 0) return ok(found);
    return warning(`${found}; it lacks ${lacks.join(', ')}`, 'The library and the demo run here; what is promised and tested is Linux.');
  },
};

const packageCheck: Check = {
  id: 'program.package',
  title: 'Leasehold',
  async run(scene) {
    const { version } = await readPackage(scene);
    const { builtRoot, packageRoot } = scene;
    const missing = (await Promise.all(programs.map(async (program) => ((await isThere(join(builtRoot, program))) ? [] : [program])))).flat();
    if (missing.length > 0) return problem(`${version} at ${packageRoot}; ${missing.join(', ')} of it are not there`, 'Build it (`npm run build`), or install the package anew.');
    const builtAtMs = (await stat(join(builtRoot, programs[0]))).mtimeMs;
    const found = `${version} at ${packageRoot}, built ${formatMs(Math.max(0, Date.now() - builtAtMs))} ago`;
    const newer = await newestSource(packageRoot);
    if (newer === null || newer.atMs <= builtAtMs) return ok(found);
    return warning(`${found}; ${newer.path} is newer than what was built of it`, 'Build it again: `npm run build`.');
  },
};

/** What is started as a process of its own, besides the command; the first is written by every build. */
const programs = ['bin/leasehold.js', 'broker/devices/nvml-helper.js', 'workers/llama/main.js', 'workers/llama/trial.js', 'workers/simulated/main.js', 'src/doctor/examiner.js'] as const;
const sourceFolders = ['protocol', 'broker', 'workers', 'src'];

/** In a checkout the source that was changed last; null where there are none. */
async function newestSource(packageRoot: string): Promise<{ readonly path: string; readonly atMs: number } | null> {
  if (!(await isThere(join(packageRoot, 'tsconfig.json')))) return null;
  const lists = await Promise.all(sourceFolders.map(async (folder) => (await readdir(join(packageRoot, folder), { recursive: true })).map((name) => join(folder, name))));
  const sources = lists.flat().filter((path) => path.endsWith('.ts') && !path.endsWith('.generated.ts'));
  const times = await Promise.all(sources.map(async (path) => ({ path, atMs: (await stat(join(packageRoot, path))).mtimeMs })));
  return times.reduce<{ readonly path: string; readonly atMs: number } | null>((newest, each) => (newest === null || each.atMs > newest.atMs ? each : newest), null);
}

const dependenciesCheck: Check = {
  id: 'program.dependencies',
  title: 'Dependencies',
  async run(scene) {
    const { dependencies } = await readPackage(scene);
    const installed = await Promise.all(Object.entries(dependencies).map(async ([name, wanted]) => ({ name, wanted, version: await installedVersion(scene.packageRoot, name) })));
    const wrong = installed.filter(({ wanted, version }) => version !== wanted);
    const found = `${String(installed.length)} packages, each in the one version that was tested`;
    if (wrong.length === 0) return ok(found);
    const says = wrong.map(({ name, wanted, version }) => `${name} is ${version ?? 'not installed'} and must be ${wanted}`).join(', ');
    return problem(says, 'Install the dependencies anew (`npm ci` in a checkout); odd versions of some of them carry hostile code, so none is taken on trust.');
  },
};

const fingerprintCheck: Check = {
  id: 'program.fingerprint',
  title: 'Fingerprint',
  async run(scene) {
    const seen = await scene.configuration();
    if (seen.kind === 'refused') return notApplicable('a configuration that is refused is part of none');
    const facts = await readRuntimeFacts(scene, seen.config.options);
    return ok(`${fingerprintOf(facts)}, compatibility policy ${String(facts.policyVersion)}`);
  },
};

/** Native parts of packages are mapped for execution from where they lie. */
const mountCheck: Check = {
  id: 'program.mount',
  title: 'File system',
  async run({ machine, packageRoot }) {
    const mount = mountOf(await readMounts(machine), packageRoot);
    if (mount === null) return { ...ok('not known on this platform'), verdict: 'not_applicable' };
    const noexec = mount.options.includes('noexec');
    return assess(`${mount.type} at ${mount.folder}`, [
      noexec ? { verdict: 'problem', says: 'mounted noexec: no native library of the package can be loaded', advice: `Install it elsewhere, or mount it so that programs may run: \`mount -o remount,exec ${mount.folder}\`.` } : null,
    ]);
  },
};

export const programChecks: readonly Check[] = [nodeCheck, platformCheck, packageCheck, dependenciesCheck, fingerprintCheck, mountCheck];

async function readPackage({ packageRoot }: Scene): Promise<Package> {
  return JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as Package;
}

/** As Node finds it: in the nearest node_modules above. Null: not installed. */
async function installedVersion(from: string, name: string): Promise<string | null> {
  for (let folder = from; ; folder = join(folder, '..')) {
    const text = await readFile(join(folder, 'node_modules', name, 'package.json'), 'utf8').catch(() => null);
    if (text !== null) return (JSON.parse(text) as { readonly version: string }).version;
    if (join(folder, '..') === folder) return null;
  }
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(() => true, () => false);
}

export function isOlder(version: string, least: string): boolean {
  const [have, want] = [version, least].map((text) => text.split('.').map(Number)) as [number[], number[]];
  for (const [index, figure] of want.entries()) if ((have[index] ?? 0) !== figure) return (have[index] ?? 0) < figure;
  return false;
}
