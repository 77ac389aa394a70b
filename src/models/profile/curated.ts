/** The profiles that were reviewed one by one, in curated.json. */
import { readFileSync } from 'node:fs';
import { packagePath } from '../../config/schema-file.js';
import type { Profile } from './profile.js';
import { readCurated } from './read.js';

let loaded: ReadonlyMap<string, Profile> | null = null;

export const curatedPath = packagePath('src', 'models', 'profile', 'curated.json');

/** Curated profiles by id, read once. */
export function curatedProfiles(): ReadonlyMap<string, Profile> {
  loaded ??= readCurated(readFileSync(curatedPath, 'utf8'), curatedPath);
  return loaded;
}

/** Where the files of a curated profile ship with this package; null where they come from a hub. The revision of one that ships is the beginning of its file's sha256. */
export function shippedFolder({ repository }: Profile): string | null {
  const [, name] = /^leasehold\/(tiny-[a-z]+)$/.exec(repository) ?? [];
  return name === undefined ? null : packagePath('workers', 'models', name);
}
