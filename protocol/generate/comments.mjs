// What the sources say about each field: the doc comment in front of it. Read
// from the syntax tree, because a comment is gone once compiled.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** Dotted path of the field inside its message (or shape) -> its doc comment on one line. */
export function commentsIn(name) {
  const path = fileURLToPath(new URL(`../messages/${name}`, import.meta.url));
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
  const comments = new Map();
  const visit = (node, trail) => {
    const named = (ts.isPropertyAssignment(node) || ts.isVariableDeclaration(node)) && ts.isIdentifier(node.name);
    const here = named && !tables.has(node.name.text) ? [...trail, node.name.text] : trail;
    if (named) {
      const text = commentOf(ts.isVariableDeclaration(node) ? node.parent.parent : node);
      if (text !== '') comments.set(here.join('.'), text);
    }
    ts.forEachChild(node, (child) => visit(child, here));
  };
  visit(source, []);
  return comments;
}

const tables = new Set(['controlMessages', 'dataMessages']);

function commentOf(node) {
  const docs = ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc);
  const text = ts.getTextOfJSDocComment(docs.at(-1)?.comment) ?? '';
  // References to decisions and requirements are for who reads the source.
  return text.replace(/\s+/g, ' ').replace(/ \((?:[BDR]\d+|ADR \d+)(?:, (?:[BDR]\d+|ADR \d+))*\)/g, '').trim();
}
