// Joins the compiled command with all that it imports of ours into a few files, dist/bin/. Loading two hundred small modules
// costs a daemon a third of its start; the library stays in modules, for whoever embeds it bundles for himself.
import { rmSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rollup } from 'rollup';

const dist = fileURLToPath(new URL('../../dist', import.meta.url));
const target = join(dist, 'bin');

/** A module goes on finding its neighbours (helpers it starts, the package it lies in) where it was compiled to. */
const urlsAsCompiled = {
  name: 'urls-as-compiled',
  resolveImportMeta: (property, { moduleId }) => {
    if (property !== 'url') return null;
    return `new URL(${JSON.stringify(relative(target, moduleId).split(sep).join('/'))}, import.meta.url).href`;
  },
};

const bundle = await rollup({
  input: join(dist, 'src', 'cli', 'main.js'),
  external: (id) => !/^[./]/.test(id) && !id.startsWith(dirname(dist)),
  plugins: [urlsAsCompiled],
  onwarn: (warning) => { throw new Error(warning.message); },
});
rmSync(target, { recursive: true, force: true });
await bundle.write({ dir: target, format: 'es', entryFileNames: 'leasehold.js', chunkFileNames: '[name].js' });
await bundle.close();
