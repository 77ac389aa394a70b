// Prints results for a person to read.

/** One line for a test file that has ended, and those that it said by `t.comment`. */
export function fileLines({ name, passed, failed, skipped, timeMs, comments }) {
  const mark = failed > 0 ? 'FAIL' : 'ok  ';
  const counts = [`${passed} passed`, failed > 0 && `${failed} failed`, skipped > 0 && `${skipped} skipped`];
  const line = `${mark} ${name}  ${counts.filter(Boolean).join(', ')}  ${(timeMs / 1000).toFixed(2)} s`;
  return [line, ...comments.map((comment) => `       ${comment}`)].join('\n');
}

/** Everything known about one failed test, over several lines. */
export function failureText({ path, reason, result, running, assertions, extra }) {
  const lines = [`FAIL ${path.join(' > ')}${reason === undefined ? '' : `: ${reason}`}`];
  if (running !== undefined) lines.push(`  it ended in the middle of: ${running.join(' > ')}`);
  for (const assertion of assertions) lines.push(`  not ok: ${assertion.name}`, ...diagLines(assertion.diag, '    '));
  if (assertions.length === 0) lines.push(...diagLines(result.diag, '    '));
  if (extra.length > 0) lines.push('  output:', ...extra.map((line) => `    ${line}`));
  return lines.join('\n');
}

function diagLines(diag, indent) {
  if (diag === undefined || diag === null || diag === false) return [];
  const { diff, stack, at, source, ...others } = diag;
  const lines = [];
  if (at !== undefined) lines.push(`at: ${at.fileName ?? '?'}:${at.lineNumber ?? '?'}`);
  for (const [key, value] of Object.entries(others)) lines.push(...`${key}: ${readable(value)}`.split('\n'));
  if (diff !== undefined) lines.push(...diff.trimEnd().split('\n'));
  if (source !== undefined) lines.push(...source.trimEnd().split('\n'));
  if (stack !== undefined) lines.push(...stack.trimEnd().split('\n').map((frame) => `  ${frame}`));
  return lines.map((line) => `${indent}${line}`);
}

function readable(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, undefined, 2) ?? String(value);
}
