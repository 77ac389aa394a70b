// Runs a compiled entry, after a build when one is due: node test/built.mjs dist/ENTRY.js [ARGUMENT ...]
// Nothing but the entry writes to stdout, so its output can be piped.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, isStale, root } from './tools/build.mjs';

const [, , entry, ...rest] = process.argv;
if (entry === undefined) {
  console.error('usage: node test/built.mjs dist/ENTRY.js [ARGUMENT ...]');
  process.exit(2);
}
if (isStale()) {
  // The compiler emits in spite of type errors, and one elsewhere in the tree need not stop this entry.
  console.error('building: this takes half a minute the first time …');
  const { ok, output } = build();
  if (!ok) console.error(`the build failed\n${output}`);
}
const path = join(root, entry);
if (!existsSync(path)) {
  console.error(`${entry} is not there: the build made no such file`);
  process.exit(1);
}
process.argv = [process.argv[0], path, ...rest];
await import(pathToFileURL(path).href);
