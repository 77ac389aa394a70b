/**
 * What a runtime is, as one hash (R148): two machines with the same one load the same profiles in the same way. The
 * compatibility policy is part of it, so a change of the policy is a change of what is deployed; a model under a row
 * that was reviewed is none. Of secrets the names alone enter.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { protocolVersion } from '../protocol/index.js';
import { currentPolicy } from './models/policy/policy.js';
import { canonicalJson, type Canonical } from './models/profile/canonical.js';
import type { OrchestratorOptions } from './orchestrator/options.js';

export interface RuntimePlaces {
  readonly packageRoot: string;
  /** Of the compiled half. */
  readonly builtRoot: string;
}

export interface RuntimeFacts {
  readonly protocolVersion: number;
  readonly node: string;
  readonly platform: string;
  readonly version: string;
  /** By name, the version that is installed; null: it is not. Engines are among them, and what they were built for. */
  readonly packages: Readonly<Record<string, string | null>>;
  readonly policyVersion: number;
  /** Of everything that runs or is read by it: programs, policy, curated profiles, error table, schema. Tests are none of it. */
  readonly sources: string;
  /** What the operator has set. */
  readonly options: Canonical;
}

export function fingerprintOf(facts: RuntimeFacts): string {
  return createHash('sha256').update(canonicalJson({ ...facts })).digest('hex');
}

/** Reads what is installed and built here. Rejects where there is no package. */
export async function readRuntimeFacts({ packageRoot, builtRoot }: RuntimePlaces, options: OrchestratorOptions): Promise<RuntimeFacts> {
  const manifest = JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as Manifest;
  const names = [manifest.dependencies, manifest.peerDependencies].flatMap((list) => Object.keys(list ?? {}));
  const installed = await Promise.all([...names, ...await engineBuilds(packageRoot)].map(async (name) => [name, await installedVersion(packageRoot, name)] as const));
  return {
    protocolVersion, node: process.versions.node, platform: `${process.platform} ${process.arch}`, version: manifest.version,
    packages: Object.fromEntries(installed), policyVersion: currentPolicy().version, sources: await digestOfSources(packageRoot, builtRoot), options: plainOptions(options),
  };
}

interface Manifest {
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** The prebuilt halves of llama.cpp's bindings: one for each kind of card. */
async function engineBuilds(packageRoot: string): Promise<readonly string[]> {
  const names = await readdir(join(packageRoot, 'node_modules', '@node-llama-cpp')).catch(() => []);
  return names.sort().map((name) => `@node-llama-cpp/${name}`);
}

async function installedVersion(packageRoot: string, name: string): Promise<string | null> {
  const text = await readFile(join(packageRoot, 'node_modules', name, 'package.json'), 'utf8').catch(() => null);
  return text === null ? null : (JSON.parse(text) as { readonly version: string }).version;
}

const data = ['protocol/errors.json', 'src/config/schema.json', 'src/models/policy/policy.json', 'src/models/profile/curated.json'];

async function digestOfSources(packageRoot: string, builtRoot: string): Promise<string> {
  const built = (await readdir(builtRoot, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && /\.m?js$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/^(test|src[\\/]bench)[\\/]/.test(relative(builtRoot, path)));
  const hash = createHash('sha256');
  for (const path of [...data.map((each) => join(packageRoot, each)), ...built].sort()) {
    hash.update(`${relative(packageRoot, path).split(sep).join('/')}\0`);
    const one = createHash('sha256');
    await pipeline(createReadStream(path), one);
    hash.update(one.digest());
  }
  return hash.digest('hex');
}

/** Without what is no setting (functions, where the state lies), and of an environment the names alone. */
function plainOptions({ stateFolder: _, ...options }: OrchestratorOptions): Canonical {
  return plain(options);
}

function plain(value: unknown, key = ''): Canonical {
  if (typeof value === 'string' || typeof value === 'boolean' || typeof value === 'number' || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => plain(each));
  if (typeof value !== 'object') return null;
  if (key === 'env') return Object.keys(value).sort();
  const kept = Object.entries(value).filter(([, each]) => each !== undefined && typeof each !== 'function');
  return Object.fromEntries(kept.map(([name, each]) => [name, plain(each, name)]));
}
