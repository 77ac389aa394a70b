// The error table as TypeScript and as the README's table.

export function errorsModule(rows) {
  const lines = rows.map(
    (row) =>
      `  ${row.code}: { number: ${row.number}, http: ${row.http}, retryable: ${row.retryable}, ` +
      `message: ${JSON.stringify(row.message)}, help: ${JSON.stringify(row.help)} },`,
  );
  return [
    '/** Generated from errors.json by `npm run generate`. Do not edit. */',
    'export const errorTable = {',
    ...lines,
    '} as const;',
    '',
    'export type ErrorCode = keyof typeof errorTable;',
    '',
  ].join('\n');
}

export function errorsTable(rows) {
  const lines = rows.map((row) => `| \`${row.code}\` | ${row.number} | ${row.http} | ${row.retryable ? 'yes' : 'no'} | ${cell(row.message)} | ${cell(row.help)} |`);
  return ['| code | number | http | retry | says | what to do |', '|---|---|---|---|---|---|', ...lines].join('\n');
}

function cell(text) {
  return text.replaceAll('|', '\\|');
}
