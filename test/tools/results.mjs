// Reads TAP and turns it into tests: a test is a subtest without subtests of its own, or a file without any.
// A file or group counts only when it failed by itself: an assertion of its own, a crash, a timeout.
import { Parser } from 'tap-parser';

const nothing = { tests: 0, failed: 0, assertions: 0, failedAssertions: [], extra: [], running: null };

/** Lines of a test's stray output, and of a file's comments, that are kept for the report. */
const linesKeptMax = 100;

/** Comments that tap writes by itself. */
const tapsOwnComment = /^# (Subtest: |time=|No coverage|\{ total|test count|failed \d|skip: |todo: |bailout|no tests found)/;

/**
 * Starts reading. `onFile({ name, passed, failed, skipped, timeMs, comments })` is called as each test file ends.
 * Write TAP to `parser`; `totals` is complete once the parser has finished.
 */
export function readResults(onFile) {
  const totals = { passed: 0, failed: 0, skipped: 0, failures: [], comments: [] };
  const parser = new Parser();
  follow(parser, { path: [], totals, onFile });
  return { parser, totals };
}

function follow(parser, { path, totals, onFile }) {
  const own = { tests: 0, failed: 0, assertions: 0, failedAssertions: [], extra: [], running: null };
  let child = null;
  let before = snapshot(totals);
  parser.on('extra', (text) => { if (own.extra.length < linesKeptMax) own.extra.push(text.trimEnd()); });
  parser.on('comment', (text) => {
    if (!tapsOwnComment.test(text) && totals.comments.length < linesKeptMax) totals.comments.push(text.trimEnd());
  });
  parser.on('child', (childParser) => {
    before = snapshot(totals);
    // Its own summary line comes later, as the parent's next assertion.
    const childPath = [...path, childParser.name];
    child = { path: childPath, own: follow(childParser, { path: childPath, totals, onFile }) };
    own.running = child;
  });
  parser.on('assert', (result) => {
    own.assertions += 1;
    const ended = child;
    child = null;
    own.running = null;
    if (ended === null) {
      if (!result.ok && !result.todo && !result.skip) own.failedAssertions.push(result);
      if (path.length === 0) settleFile(result, nothing, [result.name]);
      else if (result.skip || result.todo) totals.skipped += 1;
      return;
    }
    own.tests += 1;
    if (path.length === 0) settleFile(result, ended.own, ended.path);
    else settle(result, ended.own, ended.path);
    if (!result.ok) own.failed += 1;
  });
  return own;

  function settleFile(result, ofFile, filePath) {
    settle(result, ofFile, filePath);
    onFile({ name: filePath[0], timeMs: result.time ?? 0, comments: totals.comments.splice(0), ...difference(totals, before) });
    before = snapshot(totals);
  }

  function settle(result, of, testPath) {
    if (result.skip || result.todo) {
      // A test that asserts nothing is reported as skipped; only one that says why is.
      if (of.assertions === 0 && /no tests found/i.test(String(result.skip))) fail(result, of, testPath, 'asserts nothing');
      else totals.skipped += 1;
    } else if (!result.ok) {
      const inChildren = of.failed > 0 && of.failedAssertions.length === 0 && !broke(result);
      if (!inChildren) fail(result, of, testPath);
    } else if (of.tests === 0) {
      if (of.assertions === 0) fail(result, of, testPath, 'asserts nothing');
      else totals.passed += 1;
    }
  }

  function fail(result, of, testPath, reason) {
    totals.failed += 1;
    // A process that died leaves the test it was in without an end: that one is worth a name.
    const extra = [...of.extra];
    let last = of;
    while (last.running !== null) {
      last = last.running.own;
      extra.push(...last.extra);
    }
    totals.failures.push({ path: testPath, reason, result, running: lastRunning(of), assertions: of.failedAssertions, extra });
  }
}

/** True when the process behind a failed subtest ended badly, rather than merely holding a failed test. */
function broke(result) {
  const diag = result.diag ?? {};
  return (diag.signal ?? null) !== null || diag.error !== undefined || diag.timeout !== undefined || diag.expired !== undefined;
}

function lastRunning(of) {
  return of.running === null ? undefined : lastRunning(of.running.own) ?? of.running.path;
}

function snapshot({ passed, failed, skipped }) {
  return { passed, failed, skipped };
}

function difference(now, then) {
  return { passed: now.passed - then.passed, failed: now.failed - then.failed, skipped: now.skipped - then.skipped };
}
