/** How checks are carried out: deadlines, failures, a process of their own that may hang or die, and what comes of it all. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { allChecks, diagnose, examineApart, groupOf, groups, type Check, type Finding } from '../../src/doctor/index.js';
import { examine } from '../../src/doctor/examine.js';
import { assess, notApplicable, ok, problem, warning } from '../../src/doctor/finding.js';
import { createPalette } from '../../src/cli/terminal/colour.js';
import { renderFinding, renderVerdict } from '../../src/cli/views/doctor-view.js';
import { displayWidth } from '../../src/cli/terminal/width.js';
import { processTable } from '../../broker/supervisor/index.js';
import { fixtureScene } from './fixture.js';

const finding = (id: string, verdict: Finding['verdict']): Finding => ({ id, title: id, verdict, found: 'x', advice: null });

/** What came of each check, in the order in which it came. */
function listening(): { readonly listener: Parameters<typeof examine>[2]; readonly found: Map<string, readonly Finding[]>; readonly begun: string[] } {
  const found = new Map<string, readonly Finding[]>();
  const begun: string[] = [];
  return { found, begun, listener: { onBegun: (id) => { begun.push(id); }, onFound: (id, findings) => { found.set(id, findings); } } };
}

t.test('verdicts', async (t) => {
  t.equal(diagnose([]).verdict, 'ok');
  t.equal(diagnose([finding('a', 'not_applicable')]).verdict, 'ok', 'what does not apply is nothing wrong');
  t.equal(diagnose([finding('a', 'ok'), finding('b', 'warning')]).verdict, 'warning');
  t.equal(diagnose([finding('a', 'problem'), finding('b', 'warning')]).verdict, 'problem');
  t.strictSame(assess('seen', [null, null]), ok('seen'));
  t.strictSame(assess('seen', [{ verdict: 'warning', says: 'one', advice: 'Do A.' }, { verdict: 'problem', says: 'two', advice: 'Do B.' }, { verdict: 'warning', says: '', advice: 'Do A.' }]), problem('seen; one; two', 'Do A. Do B.'));
});

t.test('every check has an id of its own in a group that is told, and words for people', async (t) => {
  t.equal(new Set(allChecks.map(({ id }) => id)).size, allChecks.length);
  for (const { id, title } of allChecks) t.ok(groups.has(groupOf(id)) && title.length > 0 && title.length <= 24, id);
  // Whoever starts engines runs by itself, or its figures are none.
  t.strictSame(allChecks.filter(({ startsEngine, alone }) => startsEngine === true && alone !== true), []);
});

t.test('checks in this process', async (t) => {
  const scene = fixtureScene(t.testdir());
  const checks: readonly Check[] = [
    { id: 'a', title: 'A', run: async () => ok('fine') },
    { id: 'b', title: 'B', deadlineMs: 20, run: (_scene, signal) => new Promise((resolve) => { signal.addEventListener('abort', () => { resolve(ok('too late')); }); }) },
    { id: 'c', title: 'C', run: async () => { throw new Error('out of luck'); } },
    { id: 'd', title: 'D', run: () => { throw new Error('at once'); } },
    { id: 'e', title: 'E', run: async () => [{ ...ok('one'), about: 'x', title: 'X' }, { ...notApplicable('two'), about: 'y' }] },
    { id: 'f', title: 'F', alone: true, run: async () => warning('last', 'Wait.') },
  ];
  const { listener, found, begun } = listening();
  await examine(checks, scene, listener);
  t.strictSame(found.get('a'), [{ id: 'a', title: 'A', verdict: 'ok', found: 'fine', advice: null }]);
  t.match(found.get('b'), [{ verdict: 'problem', found: 'it gave no answer within 20 ms', advice: /hangs/ }]);
  t.match(found.get('c'), [{ verdict: 'problem', found: 'it could not be checked: out of luck' }]);
  t.match(found.get('d'), [{ verdict: 'problem', found: 'it could not be checked: at once' }]);
  t.match(found.get('e'), [{ id: 'e.x', title: 'X', verdict: 'ok' }, { id: 'e.y', title: 'E', verdict: 'not_applicable' }]);
  t.equal(begun.at(-1), 'f', 'who runs alone comes last');
});

t.test('checks in a process of their own', async (t) => {
  const folder = t.testdir();
  mkdirSync(folder, { recursive: true });
  /** An examiner whose every check does what its id says. */
  const program = join(folder, 'examiner.mjs');
  writeFileSync(program, `
import { appendFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
const { checks } = JSON.parse(process.argv[2]);
const say = (message) => process.stdout.write(JSON.stringify(message) + '\\n');
process.stdout.write('a warning of Node\\n');
if (checks.includes('never.begins')) process.exit(7);
for (const id of checks) say({ say: 'begun', id });
await new Promise((resolve) => setTimeout(resolve, 20));
for (const id of checks) {
  if (id === 'blocks.loop') {
    // What it has started ends with it.
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore', detached: true });
    appendFileSync(${JSON.stringify(join(folder, 'pids'))}, process.pid + ' ' + child.pid + '\\n');
    await new Promise((resolve) => setTimeout(resolve, 20));
    for (;;);
  }
  if (id === 'kills.process') { process.kill(process.pid, 'SIGSEGV'); for (;;); }
  say({ say: 'found', id, findings: [{ id, title: id, verdict: 'ok', found: 'fine', advice: null }] });
}
say({ say: 'done' });
setInterval(() => {}, 1000);
`);
  const check = (id: string): Check => ({ id, title: id, run: async () => ok('not here') });
  const run = async (ids: readonly string[], silenceMs = 15_000): Promise<ReturnType<typeof listening>> => {
    const heard = listening();
    await examineApart({ checks: ids.map(check), flags: {}, listener: heard.listener, program, silenceMs });
    return heard;
  };

  t.test('are heard, and a process that does not end by itself is ended', async (t) => {
    const { found, begun } = await run(['one', 'two']);
    t.strictSame([...found.keys()], ['one', 'two']);
    t.strictSame(begun, ['one', 'two']);
  });

  t.test('that end it are found out, and no other is lost', async (t) => {
    const { found } = await run(['one', 'kills.process', 'two']);
    t.match(Object.fromEntries(found), {
      'one': [{ verdict: 'ok' }], 'two': [{ verdict: 'ok' }], 'kills.process': [{ verdict: 'problem', found: /it ended the process that asked \(SIGSEGV/, advice: /dmesg/ }],
    });
  });

  t.test('that hang it are found out, and what they started is gone', async (t) => {
    const { found } = await run(['blocks.loop', 'one'], 3_000);
    t.match(Object.fromEntries(found), { 'one': [{ verdict: 'ok' }], 'blocks.loop': [{ verdict: 'problem', found: 'it hung the process that asked for 3 s' }] });
    const pids = readFileSync(join(folder, 'pids'), 'utf8').trim().split(/\s+/).map(Number);
    t.equal(pids.length, 4, 'with the others, then by itself');
    t.strictSame(pids.filter((pid) => processTable().find(pid) !== null), []);
  });

  t.test('that could not even begin are told so, each', async (t) => {
    const { found } = await run(['never.begins', 'one']);
    t.match(Object.fromEntries(found), { 'never.begins': [{ verdict: 'problem', found: /not carried out.*exit code 7/ }], 'one': [{ verdict: 'problem', found: /not carried out/ }] });
  });

  t.test('are left when the signal aborts', async (t) => {
    const controller = new AbortController();
    const heard = listening();
    const ended = examineApart({ checks: [check('blocks.loop')], flags: {}, listener: { ...heard.listener, onBegun: () => { controller.abort(); } }, program, signal: controller.signal });
    await ended;
    t.equal(heard.found.size, 0);
  });
});

t.test('the examiner itself answers for the checks that it is given', async (t) => {
  const heard = listening();
  const wanted = allChecks.filter(({ id }) => ['program.node', 'system.koffi', 'system.flock', 'system.sockets', 'system.kill', 'system.guard', 'system.processes', 'system.clock'].includes(id));
  await examineApart({ checks: wanted, flags: { state: join(t.testdir(), 'state') }, listener: heard.listener });
  t.strictSame([...heard.found.keys()].sort(), wanted.map(({ id }) => id).sort());
  for (const [id, findings] of heard.found) t.not(findings[0]?.verdict, 'problem', `${id}: ${findings[0]?.found ?? ''}`);
  t.match(heard.found.get('system.guard'), [{ found: /a worker is gone .* after SIGKILL to its broker/ }]);
  t.match(heard.found.get('system.flock'), [{ found: /refused to others/ }]);
});

t.test('findings as lines of a terminal', async (t) => {
  const style = (columns: number) => ({ columns, palette: createPalette(false) });
  const long: Finding = { id: 'x.y', title: 'A title', verdict: 'warning', found: 'word '.repeat(40).trim(), advice: 'Do this. '.repeat(20).trim() };
  for (const columns of [40, 80, 120]) {
    const lines = renderFinding(long, style(columns));
    t.ok(lines.every((line) => displayWidth(line) <= columns), `${columns} columns`);
    t.match(lines[0], columns === 40 ? /^ {2}! A title$/ : /^ {2}! A title {15} {2}word/, 'beside its title, or below where that is too narrow');
    t.equal(lines.filter((line) => line.includes('→')).length, 1);
  }
  t.match(renderFinding({ ...long, title: 'A title that is too long for its column' }, style(80))[0], /^ {2}! A title that is too long for its column$/);
  t.strictSame(renderFinding({ id: 'x', title: 'T', verdict: 'ok', found: 'bad \u001B[2Jfile\nname', advice: null }, style(80)), [`  ✓ T${' '.repeat(23)}bad [2Jfile name`]);
  const checks = [finding('a', 'ok'), finding('b', 'problem'), finding('c', 'warning'), finding('d', 'not_applicable')];
  t.equal(renderVerdict(diagnose(checks), '1.0 s', style(80)), '1 problem, 1 warning (1 well, 1 not applicable; 1.0 s)');
  t.equal(renderVerdict(diagnose(checks.slice(0, 1)), '1.0 s', style(80)), 'Nothing is wrong (1 well, 0 not applicable; 1.0 s)');
});
