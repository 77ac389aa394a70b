// Puts generated tables between their markers: <!-- generated: NAME --> ... <!-- end -->

export function readmeWith(text, tables) {
  for (const [name, table] of Object.entries(tables)) {
    const start = `<!-- generated: ${name} -->`;
    const from = text.indexOf(start);
    const to = text.indexOf('<!-- end -->', from);
    if (from < 0 || to < 0) throw new Error(`protocol/README.md has no place for "${name}"`);
    text = `${text.slice(0, from + start.length)}\n${table}\n${text.slice(to)}`;
  }
  return text;
}
