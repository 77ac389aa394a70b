/** Who imports whom, and who may. */
import { posix } from 'node:path';
import ts from 'typescript';
import { eachNode, parse, typescriptFiles } from './tree.js';

/** One import or re-export, type-only ones too. `target` is a path from the root for our own files, else the specifier. */
export interface Import {
  readonly from: string;
  readonly target: string;
  readonly own: boolean;
}

/** Layers from the most particular path to the most general. The first prefix that matches names the layer. */
const layers = ['protocol/node', 'protocol', 'broker/core', 'broker', 'workers/models', 'workers', 'src/orchestrator', 'src/bench', 'src/scenarios', 'src/doctor', 'src/models/formats', 'src/models/learned', 'src/models/threads', 'src/models', 'src', 'test'] as const;
type Layer = (typeof layers)[number];

/** What each layer may import of ours, besides itself. */
const allowed: Record<Layer, readonly Layer[]> = {
  'protocol': [],
  'protocol/node': ['protocol'],
  'broker/core': ['protocol'],
  'broker': ['protocol', 'protocol/node', 'broker/core'],
  'workers/models': ['protocol', 'protocol/node', 'workers'],
  // A worker reads a model file by the same reader as all others: it is shown to no engine before. What a stranger wrote runs in a thread that may die.
  'workers': ['protocol', 'protocol/node', 'workers/models', 'src/models/formats', 'src/models/learned', 'src/models/threads'],
  // The orchestrator alone starts a broker and lists the models that ship; the rest of src reaches both through it.
  'src/orchestrator': ['protocol', 'protocol/node', 'broker/core', 'broker', 'workers/models', 'src/models', 'src'],
  // A benchmark measures parts by themselves.
  'src/bench': ['protocol', 'protocol/node', 'broker/core', 'broker', 'src/orchestrator', 'src/scenarios', 'src/models/formats', 'src/models', 'src'],
  // A stress scenario runs the same core in a simulated machine, or the real thing.
  'src/scenarios': ['protocol', 'protocol/node', 'broker/core', 'src/orchestrator', 'src'],
  // The doctor tries the parts that a broker is made of, each by itself.
  'src/doctor': ['protocol', 'protocol/node', 'broker', 'src/orchestrator', 'src'],
  // From a reference to staged files and the bytes that they will need; no card is touched there.
  'src/models': ['protocol', 'protocol/node', 'src/models/formats', 'src/models/learned', 'src/models/threads', 'src'],
  // Readers of model files: bytes in, facts or a typed error out.
  'src/models/formats': ['protocol'],
  // What was measured once: a worker writes it, a command shows it.
  'src/models/learned': ['protocol'],
  // Threads that may die without anybody else hearing of it.
  'src/models/threads': ['protocol'],
  'src': ['protocol', 'protocol/node', 'src/orchestrator', 'src/scenarios', 'src/doctor', 'src/models/learned', 'src/models'],
  'test': layers,
};

const wireLibraries = new Set(['node-ipc', 'msgpackr']);

/** Names that let the outside into a pure layer. */
const impureNames = new Set([
  'Date', 'performance', 'process', 'Buffer', 'console', 'setTimeout', 'setInterval', 'setImmediate', 'clearTimeout',
  'clearInterval', 'queueMicrotask', 'crypto', 'fetch', 'globalThis',
]);

function layerOf(path: string): Layer {
  const layer = layers.find((prefix) => path.startsWith(`${prefix}/`));
  if (layer === undefined) throw new Error(`${path} is in no layer`);
  return layer;
}

function isPure(path: string): boolean {
  const layer = layerOf(path);
  return layer === 'protocol' || layer === 'broker/core';
}

/** The package that a specifier names: `@scope/name` or `name`. */
export function packageOf(specifier: string): string {
  return specifier.split('/').slice(0, specifier.startsWith('@') ? 2 : 1).join('/');
}

function importsOf(path: string): Import[] {
  const found: Import[] = [];
  const add = (specifier: ts.Node | undefined): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const own = specifier.text.startsWith('.');
    const target = own ? posix.join(posix.dirname(path), specifier.text).replace(/\.js$/, '.ts') : specifier.text;
    found.push({ from: path, target, own });
  };
  eachNode(parse(path), (node) => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) add(node.moduleSpecifier);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]);
  });
  return found;
}

/** Every import of the tree. */
export const allImports: readonly Import[] = typescriptFiles.flatMap(importsOf);

/** Sentences, one for each import that breaks a rule of direction. */
export function wrongDirections(): string[] {
  return allImports.filter((entry) => entry.own && /^(protocol|broker|workers|src|test)\//.test(entry.target)).flatMap(({ from, target }) => {
    const [importer, imported] = [layerOf(from), layerOf(target)];
    return importer === imported || allowed[importer].includes(imported) ? [] : [`${from} imports ${target}: ${importer} may not know ${imported}`];
  });
}

/** Sentences, one for each package or Node module where it does not belong. */
export function wrongPackages(): string[] {
  return allImports.filter((entry) => !entry.own).flatMap(({ from, target }) => {
    if (isPure(from)) return [`${from} imports ${target}: this layer is pure`];
    if (wireLibraries.has(packageOf(target)) && layerOf(from) !== 'protocol/node') return [`${from} imports ${target}: only protocol/node may`];
    return [];
  });
}

/** Sentences, one for each name in a pure layer that reads a clock, chance or the machine. */
export function impurities(): string[] {
  return typescriptFiles.filter(isPure).flatMap((path) => {
    const file = parse(path);
    const declared = new Set<string>();
    const used = new Map<string, number>();
    eachNode(file, (node) => {
      if (ts.isPropertyAccessExpression(node) && node.getText(file) === 'Math.random') used.set('Math.random', node.getStart(file));
      if (!ts.isIdentifier(node)) return;
      const named = 'name' in node.parent && node.parent.name === node;
      if (named && (ts.isParameter(node.parent) || ts.isVariableDeclaration(node.parent) || ts.isBindingElement(node.parent))) declared.add(node.text);
      if (!named && impureNames.has(node.text)) used.set(node.text, node.getStart(file));
    });
    return [...used].filter(([name]) => !declared.has(name))
      .map(([name, at]) => `${path}:${file.getLineAndCharacterOfPosition(at).line + 1} uses ${name}: this layer is pure`);
  });
}

/** Each circle of imports once, as `a -> b -> a`. Type-only imports count: a circle of types is still two files that are one. */
export function circles(): string[] {
  const graph = new Map<string, string[]>(typescriptFiles.map((path) => [path, []]));
  for (const { from, target, own } of allImports) if (own && graph.has(target)) graph.get(from)?.push(target);
  const found: string[] = [];
  const finished = new Set<string>();
  const trail: string[] = [];
  const visit = (path: string): void => {
    const start = trail.indexOf(path);
    if (start >= 0) found.push([...trail.slice(start), path].join(' -> '));
    if (start >= 0 || finished.has(path)) return;
    trail.push(path);
    for (const next of graph.get(path) ?? []) visit(next);
    trail.pop();
    finished.add(path);
  };
  for (const path of graph.keys()) visit(path);
  return found;
}
