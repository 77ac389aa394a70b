/** The tree as tidy sees it: every text file that belongs to the project, read once. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** The checkout's root: compiled tests lie deeper than their sources, so it is found by what it holds. */
export const root = findRoot(dirname(fileURLToPath(import.meta.url)));

const ignoredFolders = new Set(['node_modules', 'dist', '__pycache__', '.git', '.tap', '.gpu', '.venv', '.pytest_cache']);
const textFile = /(\.(ts|mjs|js|py|json|ya?ml|md|toml|txt|sh|html|css|cfg|service)|(^|\/)(\.npmrc|\.editorconfig|\.gitignore|\.gitattributes|LICENSE|run))$/;

function findRoot(from: string): string {
  return existsSync(join(from, 'package.json')) ? from : findRoot(dirname(from));
}

/** True when the project has this file or folder. */
export function has(path: string): boolean {
  return existsSync(join(root, path));
}

/** The text of a file of the project. */
export function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

/** All text files, as paths from the root with slashes, sorted. */
export const allFiles: readonly string[] = walk('').sort();

/** Hand-written sources: what sizes and functions are judged by. */
export const sources: readonly string[] = allFiles.filter((path) => /\.(ts|mjs|py)$/.test(path) && !/[._]generated\.(ts|py)$/.test(path));

/** TypeScript under the top-level folders, generated files included: what the import rules judge. */
export const typescriptFiles: readonly string[] = allFiles.filter((path) => /^(protocol|broker|workers|src|test)\/.*\.ts$/.test(path));

function walk(folder: string): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) {
      if (!ignoredFolders.has(entry.name)) found.push(...walk(path));
    } else if (entry.isFile() && textFile.test(path)) {
      found.push(path);
    }
  }
  return found;
}

const parsed = new Map<string, ts.SourceFile>();

/** A file's syntax tree, parsed once. */
export function parse(path: string): ts.SourceFile {
  let file = parsed.get(path);
  if (file === undefined) {
    file = ts.createSourceFile(path, read(path), ts.ScriptTarget.ES2022, true, path.endsWith('.ts') ? ts.ScriptKind.TS : ts.ScriptKind.JS);
    parsed.set(path, file);
  }
  return file;
}

/** Calls `visit` for every node of a tree. */
export function eachNode(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => {
    eachNode(child, visit);
  });
}
