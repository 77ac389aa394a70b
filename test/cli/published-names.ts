/** Names of the events that a broker publishes, as its source has them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../protocol/support.js';

export function effectNames(): readonly string[] {
  const source = readFileSync(join(root, 'broker/core/effects.ts'), 'utf8');
  return [...(/type PublishedName =([^;]*);/.exec(source)?.[1] ?? '').matchAll(/'(\w+)'/g)].map(([, name]) => name ?? '');
}
