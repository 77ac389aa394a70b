/** The rules of the tree that no compiler knows. A failure names each offender in a sentence. */
import t from 'tap';
import { allImports, circles, impurities, packageOf, wrongDirections, wrongPackages } from './tidy/imports.js';
import { adrFaults, deadAdrLinks, documentedCodes, errorCodes, generatedCodes, unshippedLinks } from './tidy/documents.js';
import { scenarios } from './tidy/scenarios.js';
import { fileLines, fileLinesMax, longFunctions, medianLines, medianLinesAim } from './tidy/sizes.js';
import { allFiles, has, read, typescriptFiles } from './tidy/tree.js';

const testFiles = typescriptFiles.filter((path) => path.endsWith('.test.ts'));

t.test('imports', async (t) => {
  t.test('follow the arrows between the layers', async (t) => {
    t.strictSame(wrongDirections(), []);
  });
  t.test('leave the pure layers without packages, and the wire libraries to protocol/node', async (t) => {
    t.strictSame(wrongPackages(), []);
  });
  t.test('let no clock, chance or machine into the pure layers', async (t) => {
    t.strictSame(impurities(), []);
  });
  t.test('never run in a circle', async (t) => {
    t.strictSame(circles(), []);
  });
  t.test('name only packages that a user of the library gets', async (t) => {
    const { dependencies, peerDependencies } = JSON.parse(read('package.json')) as Record<string, Record<string, string>>;
    const shipped = new Set([...Object.keys(dependencies ?? {}), ...Object.keys(peerDependencies ?? {})]);
    // Tests and benchmarks stay in the checkout.
    const stays = (path: string): boolean => /^(test|src\/bench)\//.test(path);
    t.ok((JSON.parse(read('package.json')) as { files: string[] }).files.includes('!dist/src/bench'));
    const foreign = allImports.filter(({ from, target, own }) => !own && !target.startsWith('node:') && !stays(from) && !shipped.has(packageOf(target)));
    t.strictSame(foreign.map(({ from, target }) => `${from} imports ${target}, which is no dependency`), []);
  });
});

t.test('sizes', async (t) => {
  t.comment(`median ${medianLines()} lines a file (aim ${medianLinesAim}), ${fileLines.size} files`);
  t.test(`no source is longer than ${fileLinesMax} lines`, async (t) => {
    t.strictSame([...fileLines].filter(([, lines]) => lines > fileLinesMax).map(([path, lines]) => `${path} has ${lines} lines`), []);
  });
  t.test('no function is longer than its limit, or than what it was once allowed', async (t) => {
    const { longFunctions: allowance } = JSON.parse(read('test/tidy/allowance.json')) as { longFunctions: Record<string, number> };
    const found = longFunctions();
    t.strictSame([...found].filter(([name, lines]) => lines > (allowance[name] ?? 0)).map(([name, lines]) => `${name} has ${lines} lines`), []);
    t.strictSame(Object.entries(allowance).filter(([name, lines]) => lines > (found.get(name) ?? 0)).map(([name]) => `${name} is shorter now: lower its allowance`), []);
  });
});

t.test('documents', async (t) => {
  t.test('every error code is in the table of protocol/README.md', async (t) => {
    const documented = has('protocol/README.md') ? documentedCodes() : new Set<string>();
    t.strictSame(errorCodes().filter((code) => !documented.has(code)), []);
  });
  t.test('every error code is in the generated table', async (t) => {
    const generated = has('protocol/errors.generated.ts') ? generatedCodes() : new Set<string>();
    t.strictSame(errorCodes().filter((code) => !generated.has(code)), []);
  });
  t.test('every decision record is whole and in the index', async (t) => {
    t.ok(has('adrs/README.md'), 'adrs/README.md is there');
    t.strictSame(adrFaults(), []);
    t.strictSame(deadAdrLinks(), []);
  });
  t.test('what the README links to is in the package, too', async (t) => {
    t.strictSame(unshippedLinks(), []);
  });
});

t.test('tests', async (t) => {
  t.test('lie under test/, where they are run', async (t) => {
    t.strictSame(testFiles.filter((path) => !path.startsWith('test/')), []);
  });
  t.test('have one, at least, under the id of each scenario from the field', async (t) => {
    const titled = new Set(testFiles.flatMap((path) => [...read(path).matchAll(/\.test\((['"`])(.*?)\1,/g)].flatMap(([, , title = '']) => title.match(/\b[BR]\d+\b/g) ?? [])));
    t.strictSame(scenarios.filter((id) => !titled.has(id)), []);
  });
  t.test('are never switched off', async (t) => {
    const switchedOff = /\.skip\(|\.todo\(|\bt\.only\b|\b(skip|todo): *(true|['"`])/;
    const others = typescriptFiles.filter((path) => path.startsWith('test/') && path !== 'test/tidy.test.ts');
    t.strictSame(others.filter((path) => switchedOff.test(read(path))), []);
  });
  t.test('assert something', async (t) => {
    const asserts = /\bt\w*\.(ok|notOk|equal|not|same|strictSame|match|notMatch|has|hasStrict|rejects|resolves|resolveMatch|throws|doesNotThrow|type|fail|pass|error)\(|\(t[,)]/;
    t.strictSame(testFiles.filter((path) => !asserts.test(read(path))), []);
  });
});

t.test('no file names the host of a package registry', async (t) => {
  // Joined here so that this file does not name one either.
  const hosts = [['registry', 'npmjs', 'org'], ['registry', 'yarnpkg', 'com'], ['npmmirror', 'com'], ['pypi', 'org'], ['pythonhosted', 'org'], ['crates', 'io'], ['proxy', 'golang', 'org']];
  const named = hosts.map((parts) => parts.join('.'));
  t.strictSame(allFiles.filter((path) => named.some((host) => read(path).includes(host))), []);
  t.notMatch(read('package-lock.json'), /"resolved"/, 'the lock file names no host');
  t.notMatch(read('.npmrc'), /registry *=/, 'npm uses the registry that it is set up with');
});
