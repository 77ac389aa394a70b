/** B157: where an index and the headers of its files differ, told tensor by tensor. Names are read only now, and only of the files that differ. */
import type { SafetensorsHeader } from '../formats/safetensors-header.js';
import type { SafetensorsIndex } from '../formats/safetensors-index.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import type { Reading } from '../reading/reading.js';
import { asLayoutFault, type OpenFile } from './open-file.js';

export interface Differing {
  readonly file: RepositoryFile;
  readonly header: SafetensorsHeader;
}

interface Layout {
  readonly open: OpenFile;
  readonly reading: Reading;
  readonly repository: Repository;
  readonly index: RepositoryFile;
  readonly stated: SafetensorsIndex;
}

/** What a person can look at; the rest is counted. */
const namedMax = 12;
/** Files whose names are read: more that differ are told by number. */
const filesMax = 8;
const namesMax = 50_000;

/** Follows "model.safetensors.index.json: ". */
export async function namedDifferences(layout: Layout, differing: readonly Differing[]): Promise<string> {
  const countOf = ({ file, header }: Differing): number => Math.max(header.tensors, promisedOf(layout, file.path));
  const looked = differing.slice(0, filesMax).filter((each) => countOf(each) <= namesMax);
  const unlooked = differing.filter((each) => !looked.includes(each));
  const names = await Promise.all([promisedNames(layout, looked), actualNames(layout, looked)]);
  const named = differences(...names);
  const more = named.length > namedMax ? [`${String(named.length - namedMax)} more tensors differ`] : [];
  const counted = unlooked.slice(0, namedMax).map(({ file, header }) => `it puts ${String(promisedOf(layout, file.path))} tensors into ${file.path}, which holds ${header.tensors === promisedOf(layout, file.path) ? 'others' : String(header.tensors)}`);
  const others = unlooked.length > namedMax ? [`${String(unlooked.length - namedMax)} more files differ`] : [];
  return [...named.slice(0, namedMax), ...more, ...counted, ...others].join('; ');
}

/** The names that an index puts into each file, or that each file has. */
type Names = ReadonlyMap<string, readonly string[]>;

async function promisedNames({ open, reading, repository, index }: Layout, looked: readonly Differing[]): Promise<Names> {
  return looked.length === 0 ? new Map() : asLayoutFault(repository, index.path, () => reading.indexNames(open(index), looked.map(({ file }) => file.path)));
}

async function actualNames({ open, reading, repository }: Layout, looked: readonly Differing[]): Promise<Names> {
  return new Map(await Promise.all(looked.map(async ({ file }) => [file.path, await asLayoutFault(repository, file.path, () => reading.safetensorsNames(open(file)))] as const)));
}

/** A tensor that lies in another file than it should is told once. */
function differences(promised: Names, actual: Names): readonly string[] {
  const strays = new Map<string, string[]>();
  for (const [file, names] of actual) {
    const wanted = new Set(promised.get(file));
    for (const name of names) if (!wanted.has(name)) strays.set(name, [...strays.get(name) ?? [], file]);
  }
  const misplaced = [...promised].flatMap(([file, names]) => {
    const held = new Set(actual.get(file));
    return names.filter((name) => !held.has(name)).map((name) => {
      const where = strays.get(name) ?? [];
      strays.delete(name);
      return `it puts ${name} into ${file}, which does not hold it${where.length === 0 ? '' : `: it is in ${where.join(' and ')}`}`;
    });
  });
  return [...misplaced, ...[...strays].map(([name, files]) => `${files.join(' and ')} holds ${name}, which it does not put there`)];
}

function promisedOf({ stated }: Layout, path: string): number {
  return stated.shards.find(({ name }) => name === path)?.tensors ?? 0;
}
