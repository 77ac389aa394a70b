// Reads the TAP of test files and turns it into tests: a test is a subtest without subtests of its own, or a file without any.
// A file or group counts only when it failed by itself: an assertion of its own, a crash, a timeout.
import { Parser } from 'tap-parser';

/** Lines of a test's stray output, and of a file's comments, that are kept for the report. */
const linesKeptMax = 100;

/** Comments that tap writes by itself. */
const tapsOwnComment = /^# (Subtest: |time=|No coverage|\{ total|test count|failed \d|skip: |todo: |bailout|no tests found)/;

export class Results {
  passed = 0;
  failed = 0;
  skipped = 0;
  failures = [];

  /**
   * Begins a file of this name. Pipe its TAP to `parser`; once that has ended, `end(problem, code)` counts the file and returns
   * `{ name, passed, failed, skipped, comments }`. `problem`: how its process ended badly, if it did; `code`: its exit code.
   */
  file(name) {
    const parser = new Parser();
    const file = { name, passed: 0, failed: 0, skipped: 0, comments: [] };
    const own = this.#follow(parser, [name], file);
    let final = null;
    parser.on('complete', (results) => { final = results; });
    return {
      parser,
      end: (problem, code) => {
        const reason = problem ?? wrongAsAWhole(own, final, code);
        this.#settle(file, { ok: final?.ok === true && reason === undefined, diag: {} }, own, [name], reason);
        for (const count of ['passed', 'failed', 'skipped']) this[count] += file[count];
        return file;
      },
    };
  }

  #follow(parser, path, file) {
    const own = { tests: 0, failed: 0, assertions: 0, failedAssertions: [], extra: [], running: null };
    let child = null;
    parser.on('extra', (text) => { if (own.extra.length < linesKeptMax) own.extra.push(text.trimEnd()); });
    parser.on('comment', (text) => {
      if (!tapsOwnComment.test(text) && file.comments.length < linesKeptMax) file.comments.push(text.trimEnd());
    });
    parser.on('child', (childParser) => {
      // Its own summary line comes later, as the parent's next assertion.
      const childPath = [...path, childParser.name];
      child = { path: childPath, own: this.#follow(childParser, childPath, file) };
      own.running = child;
    });
    parser.on('assert', (result) => {
      own.assertions += 1;
      const ended = child;
      child = null;
      own.running = null;
      if (ended !== null) {
        own.tests += 1;
        this.#settle(file, result, ended.own, ended.path);
        if (!result.ok) own.failed += 1;
      } else if (result.skip || result.todo) file.skipped += 1;
      else if (!result.ok) own.failedAssertions.push(result);
    });
    return own;
  }

  #settle(file, result, of, path, reason) {
    if (result.skip || result.todo) {
      // A test that asserts nothing is reported as skipped; only one that says why is.
      if (of.assertions === 0 && /no tests found/i.test(String(result.skip))) this.#fail(file, result, of, path, 'asserts nothing');
      else file.skipped += 1;
    } else if (!result.ok) {
      const inChildren = of.failed > 0 && of.failedAssertions.length === 0 && reason === undefined && !broke(result);
      if (!inChildren) this.#fail(file, result, of, path, reason);
    } else if (of.tests === 0) {
      if (of.assertions === 0) this.#fail(file, result, of, path, 'asserts nothing');
      else file.passed += 1;
    }
  }

  #fail(file, result, of, path, reason) {
    file.failed += 1;
    // A process that died leaves the test it was in without an end: that one is worth a name.
    const extra = [...of.extra];
    let last = of;
    while (last.running !== null) {
      last = last.running.own;
      extra.push(...last.extra);
    }
    this.failures.push({ path, reason, result, running: lastRunning(of), assertions: of.failedAssertions, extra });
  }
}

/** What is wrong with a file and not with a test in it; undefined for nothing. */
function wrongAsAWhole(own, final, code) {
  const failed = own.failed > 0 || own.failedAssertions.length > 0;
  if (final?.bailout) return `it bailed out${typeof final.bailout === 'string' ? `: ${final.bailout}` : ''}`;
  // A plan that was not kept, a line that cannot be.
  const broken = final?.failures.find(({ tapError }) => tapError !== undefined)?.tapError;
  if (broken !== undefined && !failed) return `${broken} (exit code ${String(code)})`;
  if (code !== 0 && !failed) return `it ended with exit code ${String(code)} though no test says that it failed`;
  return undefined;
}

/** True when what is behind a failed subtest ended badly, rather than merely holding a failed test. */
function broke(result) {
  const diag = result.diag ?? {};
  return (diag.signal ?? null) !== null || diag.error !== undefined || diag.timeout !== undefined || diag.expired !== undefined;
}

function lastRunning(of) {
  return of.running === null ? undefined : lastRunning(of.running.own) ?? of.running.path;
}
