// Descriptions as Markdown.

const largest = Number.MAX_SAFE_INTEGER;

/** One section a message: who, what kind, what ends it, and its fields. */
export function messageSections(types, names) {
  return Object.entries(types)
    .map(([type, message]) => [`#### ${type}`, '', message.about, '', facts(message), '', fieldTable(message.fields, names)].join('\n'))
    .join('\n\n');
}

export function shapeSections(shapes, names) {
  return Object.entries(shapes)
    .map(([name, fields]) => [`#### ${name}`, '', fieldTable(fields, names)].join('\n'))
    .join('\n\n');
}

export function namesTable(scalars) {
  const rows = Object.entries(scalars).map(([name, scalar]) => `| <a id="${name.toLowerCase()}"></a>${name} | ${scalarText(scalar)} | ${cell(scalar.about)} |`);
  return ['| name | value | meaning |', '|---|---|---|', ...rows].join('\n');
}

function facts({ from, kind, states, answers, interim, repeatable }) {
  const codes = (list) => list.map((name) => `\`${name}\``).join(', ');
  const parts = [`*${kind}* from ${from.join(', ')}`, `in state ${states.join(', ')}`];
  if (answers.length > 0) parts.push(`ended by ${codes(answers)}`);
  if (interim.length > 0) parts.push(`before that any number of ${codes(interim)}`);
  if (repeatable) parts.push('may be sent again under the same id while open, to raise class and deadline');
  return `${parts.join('; ')}.`;
}

function fieldTable(fields, names) {
  const rows = Object.entries(fields).flatMap(([name, field]) => fieldRows(name, field, names));
  return ['| field | value | meaning |', '|---|---|---|', ...rows].join('\n');
}

/** A row for the field, and for an object without a name of its own a row for each of its fields. */
function fieldRows(path, field, names) {
  const row = `| \`${path}\` | ${valueText(field, names)} | ${cell(field.about)} |`;
  const [inner, suffix] = innermost(field);
  if (inner.kind !== 'object' || names.has(plainText(inner))) return [row];
  return [row, ...Object.entries(inner.fields).flatMap(([name, below]) => fieldRows(`${path}${suffix}.${name}`, below, names))];
}

function innermost(field) {
  if (field.kind === 'nullable' || field.kind === 'optional') return innermost(field.inner);
  if (field.kind !== 'list') return [field, ''];
  const [inner, suffix] = innermost(field.item);
  return [inner, `[]${suffix}`];
}

/** A description without the meanings that were added to it, as it is known by. */
function plainText(description) {
  return JSON.stringify(description, (key, value) => (key === 'about' ? undefined : value));
}

function valueText(field, names) {
  const name = names.get(plainText({ ...field, about: undefined }));
  if (name !== undefined) return `[${name}](#${name.toLowerCase()})`;
  switch (field.kind) {
    case 'nullable': return `${valueText(field.inner, names)} or null`;
    case 'optional': return `may be left out; ${valueText(field.inner, names)}`;
    case 'list': return `list of at most ${grouped(field.itemsMax)}${field.distinctBy === undefined ? '' : `, each \`${field.distinctBy}\` once`}: ${valueText(field.item, names)}`;
    case 'map': return `map of at most ${grouped(field.entriesMax)}: ${valueText(field.value, names)}`;
    case 'object': return 'map';
    default: return scalarText(field);
  }
}

function scalarText(field) {
  switch (field.kind) {
    case 'integer': return `integer, ${grouped(field.minimum)} to ${grouped(field.maximum)} (${field.unit})`;
    case 'number': return `number, ${field.minimum} to ${field.maximum}`;
    case 'boolean': return 'boolean';
    case 'choice': return field.of.map((word) => `\`${word}\``).join(', ');
    case 'string': return `string of at most ${grouped(field.charactersMax)}${field.pattern === null ? '' : `, matching \`${field.pattern.replaceAll('|', '\\|')}\``}`;
    default: throw new Error(`no text for ${field.kind}`);
  }
}

function grouped(value) {
  return value === largest ? '2^53 - 1' : value.toLocaleString('en-US');
}

function cell(text) {
  return text.replaceAll('|', '\\|');
}
