// Writes what is generated from the protocol's own descriptions: `npm run generate`.
//   errors.json           -> errors.generated.ts
//   messages/*.ts         -> schema.json, and the tables of README.md between their markers
//   vectors without frame -> filled in (frames that are there are never changed: they are the wire)
// With --check nothing is written: it ends with 1 and names each file that differs.
// It reads the compiled messages from dist/protocol, which is built first.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { errorsModule, errorsTable } from './generate/errors.mjs';
import { build } from './generate/build.mjs';
import { readmeWith } from './generate/readme.mjs';
import { schemaJson } from './generate/schema.mjs';
import { filledVectors } from './generate/vectors.mjs';

const checking = process.argv.includes('--check');
const differing = [];

const { errors } = JSON.parse(read('errors.json'));
emit('errors.generated.ts', errorsModule(errors));
build();
const schema = await schemaJson();
emit('schema.json', schema.text);
emit('README.md', readmeWith(read('README.md'), { ...schema.tables, errors: errorsTable(errors) }));
for (const plane of ['control', 'data']) emit(`vectors/${plane}.json`, await filledVectors(read(`vectors/${plane}.json`)));

for (const name of differing) console.error(`protocol/${name} ${checking ? 'is not what generate.mjs writes' : 'written'}`);
process.exitCode = checking && differing.length > 0 ? 1 : 0;

function path(name) {
  return fileURLToPath(new URL(name, import.meta.url));
}

function read(name) {
  return readFileSync(path(name), 'utf8');
}

function emit(name, text) {
  if (read(name) === text) return;
  differing.push(name);
  if (!checking) writeFileSync(path(name), text);
}
