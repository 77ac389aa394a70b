// Every command but `up` against an orchestrator without processes: what it asks for, what it says to people and programs, how it ends.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError, errorTable, type ErrorCode } from '../../protocol/index.js';
import { exitCodeOf } from '../../src/cli/exit-codes.js';
import { doctor, type Examine } from '../../src/cli/commands/doctor.js';
import { createContext } from '../../src/cli/context.js';
import type { Finding } from '../../src/doctor/index.js';
import type { ExplainRecord, LeaseView } from '../../src/orchestrator/index.js';
import { explainRecord } from './example-views.js';
import { finish, start, work } from './command-world.js';
import { fakeIo, jsonLines } from './fake-io.js';

function lease(model: string, changes: Partial<LeaseView> = {}): LeaseView {
  const held = { lease: 'b-l1', generation: 'b-w1', device: 'SIM-0', gang: null, misplacedOn: null, leavingMs: null, state: 'resident', parts: [], layers: null, inFlight: 0 } as const;
  return { ...held, model, chargedBytes: 11 * 1024 ** 2, residentBytes: 1, hostChargedBytes: null, hostBytes: 0, pinned: false, idleMs: 1, ...changes };
}

const noBroker = new LeaseholdError('broker_missing', { reason: 'none answers in /run/x' });

t.test('the command line', async (t) => {
  t.test('knows its version and its help, without opening anything', async (t) => {
    t.match(await finish(['--version']), { code: 0, out: /^\d+\.\d+\.\d+\n$/, orchestrators: [] });
    const { code, out } = await finish(['--help']);
    t.equal(code, 0);
    for (const command of ['up', 'run', 'ps', 'evict', 'pin', 'explain', 'demo', 'doctor']) t.match(out, new RegExp(`^  ${command}\\b`, 'm'));
    t.match(out, /Exit status: 0 done/);
    t.match(await finish([]), { code: 2, err: /Usage: leasehold/ });
  });

  t.test('ends with the status of its error, and every code of the table has one', async (t) => {
    const by: Record<number, string[]> = {};
    for (const code of Object.keys(errorTable) as ErrorCode[]) (by[exitCodeOf(new LeaseholdError(code))] ??= []).push(code);
    t.strictSame(Object.keys(by).map(Number), [1, 2, 3, 4, 130]);
    t.strictSame([by[2]?.sort(), by[3]?.sort(), by[4]?.sort(), by[130]], [
      [
        'architecture_undeclared', 'architecture_unsupported', 'bytes_invalid', 'config_invalid', 'config_json_missing', 'config_unreadable', 'context_too_small',
        'context_undeclared', 'device_unknown', 'dtype_unsupported', 'embedding_unsupported', 'engine_unknown', 'estimate_unknown', 'file_name_unsafe', 'gguf_ambiguous',
        'gguf_incomplete', 'gguf_missing', 'hash_pin_mismatch', 'input_invalid', 'limit_relation', 'listen_failed', 'listing_too_large', 'model_config_invalid',
        'model_invalid', 'model_unknown', 'not_staged', 'profile_unknown', 'quantization_unsupported', 'reference_invalid', 'remote_code_refused', 'repository_gated',
        'repository_missing', 'repository_private', 'revision_missing', 'security_flagged', 'socket_path_too_long', 'state_unwritable', 'weights_layout_invalid',
        'weights_missing', 'weights_over_budget',
      ],
      ['broker_lost', 'broker_missing', 'connect_failed'],
      [
        'call_queue_full', 'deadline_passed', 'disk_full', 'never_fits', 'out_of_memory', 'over_lease', 'quarantined', 'queue_full', 'resize_denied',
        'stage_lock_timeout', 'too_many_leases', 'too_many_own_sessions', 'too_many_requests', 'too_many_sessions', 'too_many_workers',
      ],
      ['request_cancelled'],
    ]);
    for (const [code, status] of [['state_unwritable', 2], ['device_unmeasured', 1], ['queue_full', 4], ['connect_failed', 3]] as const) {
      t.equal((await finish(['run', 'tiny-facts', 'hi'], { failure: new LeaseholdError(code) })).code, status, code);
    }
  });

  t.test('is refused in two lines, what and what to do, with a suggestion where there is one', async (t) => {
    const cases: readonly (readonly [args: string[], what: RegExp, help: RegExp])[] = [
      [['evcit', 'x'], /unknown command 'evcit' \(Did you mean evict\?\)/, /leasehold --help/],
      [['ps', '--jsn'], /unknown option '--jsn' \(Did you mean --json\?\)/, /leasehold ps --help/],
      [['run'], /missing required argument 'model'/, /leasehold run --help/],
      [['evict'], /evict: give a model, or --all/, /leasehold evict --help/],
      [['evict', 'm', '--all'], /evict: give a model, or --all/, /leasehold evict --help/],
      [['run', 'm', 'p', '--class', 'urgent'], /'urgent' is invalid.*interactive, normal, background/, /run --help/],
      [['run', 'm', 'p', '--seed', '-1'], /argument missing|must be whole/, /.+/],
      [['run', 'm', 'p', '--seed', '9223372036854775808'], /--seed: must be whole, from 0 to 9223372036854775807/, /.+/],
      [['run', 'm', 'p', '--temperature', 'hot'], /--temperature: must be a number from 0 to 100, not "hot"/, /.+/],
      [['run', 'm', 'p', '--max-tokens', '0'], /--max-tokens: must be a whole number from 1/, /.+/],
      [['run', 'm', 'p', '--deadline', 'soon'], /--deadline: must be a duration like/, /.+/],
      [['run', 'm', 'p', '--deadline', '-5s'], /--deadline: must be a duration like.*, not "-5s"/, /.+/],
      [['run', 'm', 'p', '--deadline=-1'], /--deadline: must be a duration like.*, not "-1"/, /.+/],
      [['evict', 'm', '--deadline', '0'], /--deadline: must be a duration like.*, from 1ms to 30d, not "0"/, /.+/],
      [['run', 'm', 'p', '--context', '1.5'], /--context: must be a whole number/, /.+/],
      [['run', 'm', 'p', '--context', '32q'], /--context: must be a whole number from 1 to 16777216, or one of times 1024 like 32k, not "32q"/, /.+/],
      [['run', 'm', 'p', '--context', '999999k'], /--context: must be a whole number from 1 to 16777216/, /.+/],
      [['run', 'tiny-fcts', 'p', '--context', '512'], /--context: the configuration here has no model tiny-fcts; did you mean tiny-facts\?/, /.+/],
      [['run', 'm', 'p', '--context', '512'], /--context: the configuration here has no model m/, /.+/],
      [['run', 'm', 'p', '--raw', '--system', 's'], /--system: a raw prompt has no system message/, /.+/],
      [['ps', '--interval', '1ms'], /--interval: must be a duration/, /.+/],
      [['explain', '--count', '0'], /--count: must be a whole number from 1 to 1000/, /.+/],
      [['ps', '--limit', 'workerMax=3'], /command line: --limit workerMax: unknown key "workerMax"; did you mean workersMax\?$/, /leasehold limits/],
      [['ps', '--limit', 'colour=3'], /unknown key "colour"; \d+ keys are known here \(`leasehold limits` lists them\)\.$/, /leasehold limits/],
      [['up', '--device', '0'], /command line: --device: must be auto, cpu, sim:SIZE or a card's UUID/, /The same command with --help/],
      [['help', 'evcit'], /help: there is no command evcit; did you mean evict\?/, /leasehold --help/],
      [['help', 'nope'], /there is no command nope\.$/, /leasehold --help/],
      [['ps', '--config', '/nowhere.yaml'], /\/nowhere\.yaml cannot be read: there is no such file/, /.+/],
    ];
    for (const [args, what, help] of cases) {
      const { code, out, err, orchestrators } = await finish(args);
      t.strictSame([code, out, orchestrators.length], [2, '', 0], args.join(' '));
      const [first = '', second = '', ...more] = err.trimEnd().split('\n');
      t.match(first, new RegExp(`^error: .*(${what.source})`));
      t.match(second, new RegExp(`^ {2}help: .*(${help.source})`));
      t.strictSame(more, []);
    }
  });

  t.test('with --json is refused by one object on stdout', async (t) => {
    const { code, out, err } = await finish(['ps', '--bogus', '--json']);
    t.strictSame([code, err], [2, '']);
    t.match(jsonLines(out), [{ error: { code: 'input_invalid', message: /--bogus/, help: /ps --help/, retryable: false, retryAfterMs: null, details: Object } }]);
  });

  t.test('does not let a message command the terminal, and is coloured only where that is wanted', async (t) => {
    const failure = new LeaseholdError('model_invalid', { source: 'x\u001B[2Jy', reason: 'bad' });
    const plain = await finish(['run', 'tiny-facts', 'hi'], { failure });
    t.notMatch(plain.err, /\u001B/);
    const terminal = await finish(['run', 'tiny-facts', 'hi'], { failure }, { terminal: true });
    t.match(terminal.err, /\u001B\[31merror:\u001B\[39m x\\u001b\[2Jy/);
    for (const without of [['--no-color'], []]) {
      const { err } = await finish(['ps', ...without], {}, { terminal: true, refuse: noBroker, env: without.length === 0 ? { NO_COLOR: '1' } : {} });
      t.match(err, /^error: /);
    }
  });
});

t.test('run', async (t) => {
  const answer = () => '<think>\nlet me see\n</think>\n\nParis it is';

  t.test('streams the answer to stdout and everything else to stderr', async (t) => {
    const { code, out, err, fake } = await finish(['run', 'tiny-facts', 'capital', 'of', 'France?', '-v'], { answer });
    t.strictSame([code, out], [0, 'Paris it is\n']);
    t.match(err, /^finding a worker for tiny-facts\nwaiting for room for tiny-facts: 1st in the queue; tiny-sums is being put away\nloading tiny-facts\nthinking\n/);
    t.match(err, /5 prompt tokens, \d+ tokens, [\d.]+ tokens a second\nplaced in 0 ms, queued 0 ms, load 120 ms, prefill 3 ms, generate 40 ms\nended by stop; leasehold explain boot-x9\n$/);
    t.match((await finish(['run', 'tiny-facts', 'q', '-v', '--broker', 'own'], { answer })).err, /\nended by stop\n$/, 'a broker that ends with us explains nothing afterwards');
    t.strictSame(fake?.calls, [{ method: 'generate', args: ['tiny-facts', { messages: [{ role: 'user', content: 'capital of France?' }] }, {}] }]);
    t.match(fake, { closed: true, options: { broker: 'auto' } });
  });

  t.test('hands every option on', async (t) => {
    const args = ['--system', 'be brief', '--max-tokens', '9', '--temperature', '0.5', '--seed', '9223372036854775807', '--no-think', '--class', 'background', '--deadline', '30s', '--context', '512'];
    const { fake } = await finish(['run', 'tiny-facts', 'q', ...args], { answer });
    t.strictSame(fake?.calls[0]?.args, [
      'tiny-facts', { messages: [{ role: 'system', content: 'be brief' }, { role: 'user', content: 'q' }] },
      { maxTokens: 9, temperature: 0.5, seed: '9223372036854775807', thinking: false, class: 'background', deadlineMs: 30_000 },
    ]);
    t.strictSame(fake?.options.models, { 'tiny-facts': { source: 'tiny-facts', contextTokens: 512 } });
    const raw = await finish(['run', 'tiny-facts', '--raw', '--think', 'q'], { answer });
    t.strictSame(raw.fake?.calls[0]?.args, ['tiny-facts', { prompt: 'q' }, { thinking: true }]);
  });

  t.test('reads the question from standard input, and says so on a terminal', async (t) => {
    const { fake, out } = await finish(['run', 'tiny-facts', '-q'], { answer: (_, question) => `<${question}>` }, { stdin: 'two\nlines\n' });
    t.strictSame([fake?.calls[0]?.args[1], out], [{ messages: [{ role: 'user', content: 'two\nlines' }] }, '<two\nlines>\n']);
    const empty = await finish(['run', 'tiny-facts'], {}, { stdin: ' \n' });
    t.strictSame([empty.code, empty.orchestrators.length], [2, 0]);
    t.match(empty.err, /prompt: it is empty; give it as arguments or on standard input/);
    const long = await finish(['run', 'tiny-facts'], {}, { stdin: 'x'.repeat(4 * 1024 * 1024 + 1) });
    t.match(long.err, /longer than 4194304 bytes/);
    const typed = start(['run', 'tiny-facts'], {}, { stdin: null });
    await typed.io.wrote('end it with Ctrl-D');
    typed.io.stop('SIGINT');
    t.strictSame([await typed.ended, typed.orchestrators.length], [130, 0], 'Ctrl-C while it waits for words');
  });

  t.test('serves a GGUF file under its path, beside what is configured, and preloads nothing', async (t) => {
    writeFileSync(join(work, 'my-model.gguf'), 'GGUF');
    writeFileSync(join(work, 'served.yaml'), 'models: { big: { source: tiny-tales, preload: true, aliases: [b] } }');
    const { fake } = await finish(['run', './my-model.gguf', 'q', '--config', 'served.yaml'], { answer, served: ['./my-model.gguf'] });
    t.strictSame(fake?.options.models, { 'big': { source: 'tiny-tales', preload: false, aliases: ['b'] }, './my-model.gguf': { source: join(work, 'my-model.gguf') } });
    t.equal(fake?.calls[0]?.args[0], './my-model.gguf');
    writeFileSync(join(work, 'named.yaml'), 'models: { my-model.gguf: { source: tiny-tales }, my-model: { source: tiny-sums } }');
    for (const [command, written] of [['run', 'my-model.gguf'], ['evict', './my-model.gguf'], ['pin', join(work, 'my-model.gguf')], ['explain', './my-model.gguf']] as const) {
      const name = written === 'my-model.gguf' ? './my-model.gguf' : written;
      const beside = await finish([command, written, '--config', 'named.yaml'], { answer, served: [name] }, { stdin: 'q' });
      t.strictSame(beside.fake?.options.models, {
        'my-model.gguf': { source: 'tiny-tales', preload: false }, 'my-model': { source: 'tiny-sums', preload: false }, [name]: { source: join(work, 'my-model.gguf') },
      }, `${command}: no name of the configuration is taken`);
      t.equal(beside.fake?.calls[0]?.args[0], name);
    }
    const alias = await finish(['run', 'b', 'q', '--config', 'served.yaml', '--context', '64'], { answer, served: ['b'] });
    t.strictSame(alias.fake?.options.models, { big: { source: 'tiny-tales', preload: false, aliases: ['b'], contextTokens: 64 } });
  });

  t.test('says of a path what is wrong with it, and of a name that there is no such model', async (t) => {
    writeFileSync(join(work, 'notes.yaml'), 'models: {}');
    mkdirSync(join(work, 'folder.gguf'));
    const cases: readonly (readonly [written: string, what: string])[] = [
      ['./nofile.gguf', 'there is no such file'], ['/nowhere/x', 'there is no such file'], ['nofile.gguf', 'there is no such file'], ['some/where/else', 'there is no such file'],
      ['./notes.yaml', 'it is not a GGUF file'], ['notes.yaml', 'it is not a GGUF file'], ['./folder.gguf', 'it is a folder without a GGUF file'], ['README.md', 'there is no such file'], ['./notes.yaml/x', 'there is no such file'],
    ];
    for (const [written, what] of cases) {
      for (const args of [['run', written, 'q', '-q'], ['evict', written], ['explain', written]]) {
        const failure = new LeaseholdError('model_unknown', { model: written, known: 'tiny-facts' });
        const { code, err } = await finish(args, { failure });
        t.equal(code, args[0] === 'explain' && !/^[./]/.test(written) ? 0 : 2, args.join(' '));
        if (code !== 0) t.match(err, `error: ${written} cannot be used: ${what}.\n`);
      }
    }
    t.match((await finish(['run', 'nofile.gguf', 'q', '--context', '64'])).err, /nofile\.gguf cannot be used: there is no such file/);
    t.match((await finish(['run', 'notes.yaml', 'q', '-q'], { answer, served: ['notes.yaml'] })), { code: 0, out: 'Paris it is\n' }, 'a name that is known is a name, whatever lies beside');
    for (const name of ['nobody', 'qwen2.5', 'phi-3.5-mini', 'm.Q4_K_M']) t.match((await finish(['run', name, 'q', '-q'], { failure: new LeaseholdError('model_unknown', { model: name, known: '' }) })).err, `There is no model ${name} here`, 'a version is no ending of a file');
    t.match((await finish(['estimate', 'README.md'])).err, /README\.md cannot be used: there is no such file/);
    t.match((await finish(['estimate', './notes.yaml'])).err, /notes\.yaml cannot be used: it is no GGUF model file/);
    const unknown = { failure: new LeaseholdError('model_unknown', { model: 'some/where', known: 'tiny-facts' }) };
    for (const args of [['evict', 'some/where'], ['run', 'some/where', 'q', '-q']]) t.match((await finish(args, unknown, { env: { LEASEHOLD_MODELS: join(work, 'store') } })), { code: 2, err: /some\/where has not been pulled[\s\S]*leasehold pull/ });
  });

  t.test('says which options a broker that runs already does not follow', async (t) => {
    const given = ['run', 'tiny-facts', 'q', '--device', 'sim:64MiB', '--reserve', '1MiB'];
    t.match((await finish(given, { answer })).err, /^--device, --reserve ignored: a broker runs already at \/run\/leasehold\/broker\.sock, and its cards are as it was started\.\n/);
    t.equal((await finish([...given, '-q'], { answer })).err, '');
    t.notMatch((await finish([...given, '--broker', 'own'], { answer })).err, /ignored/);
    const told = { answer, ignored: new LeaseholdError('config_invalid', { path: 'devices', where: 'sim:9MiB', reason: 'no card of that broker' }) };
    t.match((await finish(['run', 'tiny-facts', 'q'], told)).err, /^devices: sim:9MiB: no card of that broker\.$/m, 'what a file asks for, too');
    t.notMatch((await finish(given, told)).err, /sim:9MiB/, 'and nothing twice');
    t.equal((await finish(['run', 'tiny-facts', 'q', '-q'], told)).err, '');
  });

  t.test('says in one line that the broker is gone and who answers instead', async (t) => {
    const own = { lostPid: 4711, ownsBroker: true, socketPath: '/x', devices: ['CPU-0'] };
    t.match((await finish(['run', 'tiny-facts', 'q'], { answer, change: own })).err, /^The broker \(pid 4711\) is gone; this process owns one now, for this call, on CPU-0\.$/m);
    t.match((await finish(['run', 'tiny-facts', 'q'], { answer, change: { ...own, lostPid: null, ownsBroker: false, devices: ['SIM-1', 'SIM-2'] } })).err, /^The broker is gone; another one has taken its place, on SIM-1, SIM-2\.$/m);
    t.match((await finish(['run', 'tiny-facts', 'q'], { answer, lost: { pid: 4711, graceMs: 30_000, stopped: false } })).err, /^The broker \(pid 4711\) is gone; waiting up to 30\.0 s for it to come back\.$/m);
    t.match((await finish(['run', 'tiny-facts', 'q'], { answer, lost: { pid: 4711, graceMs: 30_000, stopped: true } })).err, /^The broker \(pid 4711\) has been stopped; waiting up to 30\.0 s for the next\.$/m);
    t.equal((await finish(['run', 'tiny-facts', 'q', '-q'], { answer, lost: { pid: null, graceMs: 1, stopped: false }, change: own })).err, '');
  });

  t.test('begins what else it has to say on a line of its own, and the answer on stdout stays whole', async (t) => {
    const told = { answer: () => 'Paris it is', lost: { pid: 4711, graceMs: 30_000, stopped: false }, lostAfterTokens: 1 };
    const notice = 'The broker (pid 4711) is gone; waiting up to 30.0 s for it to come back.\n';
    const apart = await finish(['run', 'tiny-facts', 'q'], told);
    t.equal(apart.out, 'Paris it is\n');
    t.ok(apart.err.endsWith(notice));
    t.notMatch(apart.err, /\n\n/, 'elsewhere it needs no line before it');
    const together = await finish(['run', 'tiny-facts', 'q', '--no-color'], told, { terminal: true });
    t.equal(together.out, 'Paris it is\n');
    t.ok(together.err.endsWith(`\n${notice}`), 'where both are seen, it does not go on in the middle of the answer');
  });

  t.test('shows thought on stderr when asked, and keeps the terminal safe', async (t) => {
    const shown = await finish(['run', 'tiny-facts', 'q', '--show-thought', '-q'], { answer });
    t.strictSame([shown.out, shown.err], ['Paris it is\n', 'let me see\n\n']);
    const hostile = { answer: () => 'a\u001B]0;owned\u0007b' };
    t.equal((await finish(['run', 'tiny-facts', 'q', '-q'], hostile)).out, 'a\u001B]0;owned\u0007b\n', 'a file gets what the model said');
    t.equal((await finish(['run', 'tiny-facts', 'q', '-q'], hostile, { terminal: true })).out, 'a]0;ownedb\n');
  });

  t.test('with --json is stages, tokens and an end', async (t) => {
    const { code, out, err } = await finish(['run', 'tiny-facts', 'q', '--json'], { answer });
    t.strictSame([code, err], [0, '']);
    const lines = jsonLines(out);
    t.strictSame([...new Set(lines.map(({ event }) => event))], ['stage', 'token', 'end']);
    t.match(lines.at(-1), { event: 'end', reason: 'stop', text: /Paris it is/, thought: /let me see/, usage: { promptTokens: 5 }, timings: { loadMs: 120 }, explain: 'boot-x9' });
    t.match(lines.find(({ event }) => event === 'token'), { event: 'token', text: String, ids: [1], thought: true });
  });

  t.test('ends with a status that says why it failed', async (t) => {
    const failures: readonly (readonly [LeaseholdError, number])[] = [
      [new LeaseholdError('never_fits', { model: 'm', needBytes: 2, device: 'd', mostBytes: 1 }), 4],
      [new LeaseholdError('deadline_passed', { what: 'x', deadlineMs: 1, reason: 'y' }), 4],
      [new LeaseholdError('model_unknown', { model: 'm', known: '' }), 2],
      [new LeaseholdError('worker_exited', { generation: 'w', how: 'SIGKILL' }), 1],
      [new LeaseholdError('connect_failed', { path: 'p', reason: 'r' }), 3],
      [new LeaseholdError('request_cancelled', { what: 'It' }), 130],
    ];
    for (const [failure, status] of failures) {
      const { code, err, fake } = await finish(['run', 'tiny-facts', 'q', '-q'], { failure });
      t.strictSame([code, fake?.closed], [status, true], failure.code);
      t.match(err, /^error: .*\n {2}help: /);
    }
  });

  t.test('is cancelled by the first Ctrl-C, quietly, and ended by the second', async (t) => {
    const { io, orchestrators, ended } = start(['run', 'tiny-facts', 'q', '-q'], { endless: true });
    await io.wrote('You said: q');
    io.stop('SIGINT');
    io.stop('SIGHUP');
    t.strictSame(io.exits, [], 'a terminal that closes is no second Ctrl-C');
    io.stop('SIGINT');
    t.strictSame([await ended, io.stdout.text, io.stderr.text, io.exits, orchestrators[0]?.closed], [130, 'You said: q\n', '', [130], true]);
    const json = start(['run', 'tiny-facts', 'q', '--json'], { endless: true });
    await json.io.wrote('"q"');
    json.io.stop('SIGTERM');
    t.equal(await json.ended, 143);
    t.match(jsonLines(json.io.stdout.text).at(-1), { error: { code: 'request_cancelled' } });
  });
});

t.test('explain without a count goes back to the decision', async (t) => {
  const told = async (records: readonly Partial<ExplainRecord>[], about = 'tiny-sums') => {
    const whole = records.map((record) => explainRecord({ model: 'tiny-sums@llama#0', victims: [], ...record }));
    return jsonLines((await finish(['explain', about, '--json'], { records: whole })).out).map(({ id }) => id);
  };
  const plan = explainRecord({}).victims;
  const ofRequest = [{ id: 'b-x9', verdict: 'granted' }, { id: 'b-x8', request: 2 }, { id: 'b-x7', verdict: 'evicting', victims: plan }, { id: 'b-x6', verdict: 'waiting' }] as const;
  t.strictSame(await told(ofRequest), ['b-x9', 'b-x7'], 'the grant and the plan that made room for it, nothing of other requests');
  t.strictSame(await told([{ id: 'b-x9', verdict: 'granted' }, { id: 'b-x1', request: 2 }]), ['b-x9']);
  t.strictSame(await told([{ id: 'b-x9', verdict: 'waiting', victims: plan }, { id: 'b-x8' }]), ['b-x9'], 'a wait that says who was considered is the decision');
  const ofLeaving = [{ id: 'b-x9', verdict: 'evicted', request: null }, { id: 'b-x8', verdict: 'evicting', request: null }, { id: 'b-x7', verdict: 'evicting', model: 'tiny-facts@llama#0', request: 5, victims: [{ ...plan[0]!, model: 'tiny-sums@llama#0' }] }, { id: 'b-x6', verdict: 'granted' }] as const;
  t.strictSame(await told(ofLeaving), ['b-x9', 'b-x8', 'b-x7'], 'from what came free to the plan that chose it');
  t.strictSame(await told([{ id: 'b-x9', verdict: 'ended', request: null }, { id: 'b-x8', verdict: 'placed' }]), ['b-x9']);
});

t.test('run says when a context is longer than what the model was made for', async (t) => {
  const told = async (...args: string[]): Promise<string> => (await finish(['run', 'tiny-facts', 'q', ...args])).err;
  t.match(await told('--context', '4096'), /A context of 4096 tokens is beyond the 2048 that the model was made for/);
  for (const args of [['--context', '2048'], ['--context', '4096', '-q'], []]) t.notMatch(await told(...args), /beyond the/);
  t.match(await told('--context', '16777217'), /from 1 to 16777216/);
});

t.test('models and limits list what can be named', async (t) => {
  const config = join(work, 'listed.yaml');
  writeFileSync(config, 'models:\n  chat: { source: tiny-tales, aliases: [c] }\nlimits: { workersMax: 3 }\n');
  const local = await finish(['models', '--config', config], {}, { refuse: noBroker, columns: 120 });
  t.equal(local.code, 0);
  t.match(local.out, /^MODEL +ALIASES +ENGINE +CONTEXT +LOADED +SOURCE\nchat +c +llama +2048 +- +\S+\ntiny-tales [^]*No broker runs: /);
  t.match(jsonLines((await finish(['models', '--json', '--config', config], {}, { refuse: noBroker })).out), [{ name: 'chat', aliases: ['c'], leases: [] }, { name: 'tiny-tales' }, { name: 'tiny-sums' }, { name: 'tiny-facts' }]);
  writeFileSync(join(work, 'long.gguf'), 'GGUF');
  const deep = join(work, 'deep.yaml');
  writeFileSync(deep, 'models:\n  deep: { source: ./long.gguf, aliases: [first-alias-of-it, second-alias-of-it] }\n');
  const shown = async (terminal: boolean): Promise<string> => (await finish(['models', '--config', deep], {}, { refuse: noBroker, columns: 60, terminal })).out;
  t.match(await shown(true), /deep +fir[^ ]*…[^ ]*it .*…[^ ]*long\.gguf\n/, 'cut to the terminal, and the end of the path kept');
  t.match(await shown(false), /first-alias-of-it, second-alias-of-it .*\/long\.gguf\n/);
  t.notMatch(await shown(false), /…/);
  const leases = [lease('tiny-sums@llama#0', { pinned: true })];
  t.match((await finish(['models'], { ledger: { leases } }, { columns: 120 })).out, /tiny-sums +llama +2048 +resident, 11\.0 MiB, pinned +tiny-sums\n/);
  t.match((await finish(['models'], {}, { refuse: new LeaseholdError('connection_lost', { peer: 'x', reason: 'y' }) })).code, 1, 'only that none runs is no failure');
  const { code, out } = await finish(['limits', '--config', config]);
  t.equal(code, 0);
  t.match(out, /^workersMax +3 {2}\(default 64\)\n {4}Worker processes alive at once\.$/m);
  t.match(out, /^frameBytesMax +8MiB\n[^]*^helloTimeoutMs +10s\n/m, 'as leasehold.yaml takes them');
  t.match(jsonLines((await finish(['limits', '--json'])).out).find(({ limit }) => limit === 'workersMax'), { value: 64, default: 64, minimum: 1, about: 'Worker processes alive at once.' });
});

t.test('ps, evict, pin and explain', async (t) => {
  t.test('need a running broker, and say how to start one', async (t) => {
    for (const args of [['ps'], ['evict', 'tiny-sums'], ['pin', 'tiny-sums'], ['explain']]) {
      const { code, out, err } = await finish(args, {}, { refuse: noBroker });
      t.strictSame([code, out], [3, '']);
      t.equal(err, 'error: No broker is running here: none answers in /run/x.\n  help: Start one with `leasehold up`, or name the state folder of one that runs (--state, LEASEHOLD_STATE).\n');
      const json = await finish([...args, '--json'], {}, { refuse: noBroker });
      t.match(jsonLines(json.out), [{ error: { code: 'broker_missing', message: 'No broker is running here: none answers in /run/x.', help: /leasehold up/, details: { reason: 'none answers in /run/x' } } }]);
    }
  });

  t.test('ps draws the ledger once, as text or as JSON with names beside the keys', async (t) => {
    const { code, out, fake } = await finish(['ps', '--state', '/run/x']);
    t.match(out, /^SIM-0a1b2c3d-0 {2}simulated card · 26\.0 MiB/);
    t.match(out, /No model is loaded\./);
    t.match(fake, { closed: true, options: { broker: 'attach', stateFolder: '/run/x' } });
    t.equal(code, 0);
    const leases = [{ model: 'tiny-sums@llama#0' }] as never;
    t.match(jsonLines((await finish(['ps', '--json'], { ledger: { leases } })).out), [{ bootId: 'boot', cards: [{ totalBytes: 26 * 1024 ** 2 }], leases: [{ model: 'tiny-sums@llama#0', name: 'tiny-sums' }] }]);
  });

  t.test('ps --watch draws until Ctrl-C, and leaves the terminal as it was', async (t) => {
    const { io, ended, orchestrators } = start(['ps', '--watch', '--interval', '100ms'], {}, { terminal: true });
    await io.wrote('broker pid 4711');
    io.stop('SIGINT');
    t.strictSame([await ended, orchestrators[0]?.closed], [130, true], 'as the help says');
    t.ok(io.stdout.text.endsWith('\u001B[?25h'), 'the cursor is back');
    const json = start(['ps', '--watch', '--json', '--interval', '100ms']);
    await json.io.wrote('"bootId"');
    json.io.stop('SIGINT');
    t.equal(await json.ended, 130);
  });

  t.test('evict says what came back', async (t) => {
    const { code, out, fake } = await finish(['evict', 'tiny-sums', '--park', '--deadline', '5s']);
    t.strictSame([code, out], [0, 'tiny-sums held nothing on a card.\n']);
    t.strictSame(fake?.calls, [{ method: 'evict', args: ['tiny-sums', { target: 'host', deadlineMs: 5_000 }] }]);
    t.strictSame(jsonLines((await finish(['evict', 'tiny-sums', '--json'])).out), [{ model: 'tiny-sums', freedBytes: 0, parked: false, alsoLoaded: [] }]);
    t.match(await finish(['evict', 'nobody']), { code: 2, err: /^error: There is no model nobody here; known: tiny-tales, tiny-sums, tiny-facts\.\n/ });
    t.equal((await finish(['evict', 'tiny-sums'])).err, '', 'what is done at once is not waited for');
    t.equal((await finish(['evict', 'tiny-sums'], { evictMs: 500 })).err, 'waiting for the calls of tiny-sums to end and its bytes to be free\n');
  });

  t.test('evict --park says what was done: parked, or unloaded and where it says why', async (t) => {
    const gone = { model: 'tiny-sums', freedBytes: 1024 ** 2, stayed: null };
    const unloaded = 'tiny-sums unloaded: 1.0 MiB confirmed free. It could not be parked: its engine cannot, or memory for its copy is short (leasehold explain tiny-sums).\n';
    t.equal((await finish(['evict', '--all', '--park'], { evictedAll: [gone] })).out, unloaded);
    const ledger = { leases: [lease('tiny-sums@llama#0', { state: 'parked' })] };
    t.equal((await finish(['evict', '--all', '--park'], { evictedAll: [gone], ledger })).out, 'tiny-sums parked: 1.0 MiB confirmed free; it comes back from the machine\'s memory.\n');
    t.match(jsonLines((await finish(['evict', '--all', '--park', '--json'], { evictedAll: [gone], ledger })).out), [{ models: [{ model: 'tiny-sums', freedBytes: 1024 ** 2, parked: true, stayed: null }] }]);
  });

  t.test('evict --all says of each model what came back, or why it stays', async (t) => {
    const gone = { model: 'tiny-sums', freedBytes: 1024 ** 2, stayed: null };
    const pinned = { model: 'tiny-facts', freedBytes: 0, stayed: new LeaseholdError('pinned', { model: 'tiny-facts' }) };
    const all = await finish(['evict', '--all', '--deadline', '5s'], { evictedAll: [gone] });
    t.strictSame([all.code, all.out, all.fake?.calls], [0, 'tiny-sums put away: 1.0 MiB confirmed free.\n', [{ method: 'evictAll', args: [{ target: 'none', deadlineMs: 5_000 }] }]]);
    const some = await finish(['evict', '--all'], { evictedAll: [pinned, gone] });
    t.match(some, { code: 1, out: /^tiny-facts stays: .*pinned.*\ntiny-sums put away/ });
    t.match(jsonLines((await finish(['evict', '--all', '--json'], { evictedAll: [pinned] })).out), [{ models: [{ model: 'tiny-facts', freedBytes: 0, stayed: { code: 'pinned' } }] }]);
    t.match(await finish(['evict', '--all']), { code: 0, out: 'No model holds anything.\n' });
  });

  t.test('pin goes both ways', async (t) => {
    const { out, fake } = await finish(['pin', 'tiny-sums']);
    t.strictSame([out, fake?.calls[0]?.args], ['tiny-sums is pinned (not loaded yet): once it is, it is evicted for nobody.\n', ['tiny-sums', true]]);
    t.strictSame(jsonLines((await finish(['pin', 'tiny-sums', '--off', '--json'])).out), [{ model: 'tiny-sums', pinned: false, loaded: false, alsoLoaded: [] }]);
    const loaded = (pinned: boolean) => ({ ledger: { leases: [lease('tiny-sums@llama#0', { pinned })] } });
    t.equal((await finish(['pin', 'tiny-sums'], loaded(false))).out, 'tiny-sums is pinned: it is evicted for nobody.\n');
    t.equal((await finish(['pin', 'tiny-sums', '--off'], loaded(true))).out, 'tiny-sums is no longer pinned.\n');
    t.equal((await finish(['pin', 'tiny-sums', '--off'], loaded(false))).out, 'tiny-sums was not pinned.\n');
    t.equal((await finish(['pin', 'tiny-sums', '--off'])).out, 'tiny-sums is not pinned (not loaded).\n');
  });

  t.test('name the copy that is loaded, where another one was meant', async (t) => {
    const copied = { ledger: { leases: [lease('tiny-sums@llama#1'), lease('tiny-sums@vllm#2'), lease('tiny-tales@llama#0'), lease('tiny-tales@llama#3')] } };
    const also = (purpose: string) => `Also loaded, from a file of the same name: 'tiny-sums@llama#1'; give that name to ${purpose}.\n`;
    t.equal((await finish(['evict', 'tiny-sums'], copied)).out, `tiny-sums held nothing on a card.\n${also('evict it')}`);
    t.strictSame(jsonLines((await finish(['evict', 'tiny-sums', '--json'], copied)).out), [{ model: 'tiny-sums', freedBytes: 0, parked: false, alsoLoaded: ['tiny-sums@llama#1'] }]);
    t.equal((await finish(['pin', 'tiny-sums'], copied)).out, `tiny-sums is pinned (not loaded yet): once it is, it is evicted for nobody.\n${also('pin it')}`);
    t.equal((await finish(['explain', 'tiny-sums'], copied)).out, `There is no record about tiny-sums. Records do not outlive their broker, and\nthis one has run for 1 m 30 s.\n${also('have it explained')}`);
    t.match((await finish(['models'], copied, { columns: 120 })).out, /tiny-sums +llama +2048 +another copy: tiny-sums@llama#1 +tiny-sums\n/);
    t.match(jsonLines((await finish(['models', '--json'], copied)).out), [{ name: 'tiny-tales', alsoLoaded: [] }, { name: 'tiny-sums', alsoLoaded: ['tiny-sums@llama#1'] }, { name: 'tiny-facts', alsoLoaded: [] }]);
    t.notMatch((await finish(['pin', 'tiny-tales'], copied)).out, /Also loaded/, 'it is loaded itself');
    const two = { ledger: { leases: [lease('tiny-sums@llama#1'), lease('tiny-sums@llama#2')] } };
    t.match((await finish(['evict', 'tiny-sums'], two)).out, /'tiny-sums@llama#1', 'tiny-sums@llama#2'; give one of those names to evict it\.\n$/);
  });

  t.test('explain shows records newest first, with names in place of keys', async (t) => {
    const records = [explainRecord({ model: 'tiny-sums@llama#0', text: 'tiny-sums@llama#0 waits for 0123456789ab-w4' }), explainRecord({ id: 'b-x6', verdict: 'granted' })];
    const { out, fake } = await finish(['explain', 'tiny-sums', '--count', '2'], { records });
    t.strictSame(fake?.calls[0]?.args, ['tiny-sums', 2]);
    t.match(out, /^WAITING {2}tiny-sums · [^\n]*\n {2}tiny-sums waits for w4\n[^]*\n\nGRANTED/);
    t.match(jsonLines((await finish(['explain', '--json', '--count', '9'], { records })).out), [{ id: 'b-x7', verdict: 'waiting', model: 'tiny-sums@llama#0', name: 'tiny-sums' }, { id: 'b-x6' }]);
    t.equal((await finish(['explain'])).out, 'Nothing has been decided yet. Records do not outlive their broker, and this one\nhas run for 1 m 30 s.\n');
    t.equal((await finish(['explain', 'tiny-sums'])).out, 'There is no record about tiny-sums. Records do not outlive their broker, and\nthis one has run for 1 m 30 s.\n');
    const again = [explainRecord({ id: 'b-x9', request: 12, verdict: 'placed', victims: [] }), explainRecord({ id: 'b-x8', request: 11, verdict: 'placed', victims: [] }), explainRecord({ id: 'b-x7', request: 3, verdict: 'granted', victims: [] }), explainRecord({ id: 'b-x6', request: 3, verdict: 'evicting' })];
    t.strictSame(jsonLines((await finish(['explain', 'tiny-sums', '--json'], { records: again })).out).map(({ id }) => id), ['b-x9', 'b-x7', 'b-x6'], 'a run of what is resident, and what brought it there');
    const story = [explainRecord({ victims: [] }), explainRecord({ id: 'b-x5', verdict: 'evicting' })];
    t.match((await finish(['explain', 'tiny-sums'], { records: story }, { columns: 160 })).out, /^WAITING[^]*not leaving already; for this one before: tales@llama#1\n\nEVICTING[^]*not leaving already\n/);
    for (const json of [[], ['--json']]) {
      const { code, out: told, err } = await finish(['explain', 'abc-x99', ...json]);
      t.equal(code, 2);
      t.match(json.length === 0 ? err : told, /this broker has no record abc-x99\./);
    }
  });
});

t.test('doctor', async (t) => {
  /** What `doctor` says when its checks find this. */
  const examined = async (verdicts: Readonly<Record<string, Finding['verdict']>>, given: { readonly groups?: readonly string[]; readonly json?: boolean; readonly engines?: boolean; readonly terminal?: boolean } = {}) => {
    const io = fakeIo({ terminal: given.terminal ?? false });
    const asked: string[] = [];
    const examine: Examine = async ({ checks, listener }) => {
      asked.push(...checks.map(({ id }) => id));
      // The last first: they are told in their own order.
      for (const { id, title } of [...checks].reverse()) {
        listener.onBegun(id);
        const verdict = verdicts[id] ?? 'ok';
        listener.onFound(id, [{ id, title, verdict, found: `seen ${id}`, advice: verdict === 'ok' ? null : `Mend ${id}.` }]);
      }
    };
    const context = createContext({ io, createOrchestrator: async () => { throw new Error('the doctor opens none'); } }, { color: false, json: given.json ?? false });
    const code = await doctor(context, [given.groups ?? []], given.engines === false ? { engines: false } : {}, examine);
    return { code, asked, out: io.stdout.text, err: io.stderr.text };
  };

  t.test('tells groups in their order, with what to do, and counts at the end', async (t) => {
    const { code, out } = await examined({ 'state.folder': 'warning', 'limits.cpu': 'not_applicable' });
    t.equal(code, 0, 'warnings are no failure');
    t.match(out, /^Leasehold \d+\.\d+\.\d+ looks at this machine; it changes nothing\n\nProgram\n {2}✓ Node\.js {17}seen program\.node\n/);
    t.match(out, /\nState folder\n[^]*! Folder {18}seen state\.folder\n {28}→ Mend state\.folder\.\n[^]*\nRunning broker\n[^]*\nEngines\n/);
    t.match(out, /\nNo problem, 1 warning \(\d+ well, 1 not applicable; \d+ ms\)\n$/);
  });

  t.test('fails on a problem alone, and with --json is one object', async (t) => {
    t.match(await examined({ 'cards': 'problem' }), { code: 1, out: /✗ Cards[^]*1 problem, 0 warnings/ });
    const { code, out } = await examined({ 'cards': 'problem', 'state.folder': 'warning' }, { json: true, groups: ['cards', 'state'] });
    const [diagnosis, ...others] = jsonLines(out);
    t.strictSame([code, others.length, Object.keys(diagnosis ?? {})], [1, 0, ['checks', 'verdict']]);
    t.match(diagnosis, { verdict: 'problem', checks: [{ id: 'state.path', title: 'Path', verdict: 'ok', found: 'seen state.path', advice: null }, { id: 'state.folder', verdict: 'warning', advice: 'Mend state.folder.' }] });
  });

  t.test('looks only at what it is asked, and starts no engine when told so', async (t) => {
    t.ok((await examined({}, { groups: ['masks', 'memory'] })).asked.every((id) => /^(masks|memory)\b/.test(id)));
    t.ok((await examined({})).asked.some((id) => id.startsWith('engines.')));
    t.notOk((await examined({}, { engines: false })).asked.some((id) => id.startsWith('engines.')));
    t.match(await finish(['doctor', 'nonsense']), { code: 2, err: /group: must be one of program, state, .*engines, not "nonsense"/ });
  });

  t.test('on a terminal says what it looks at', async (t) => {
    t.match((await examined({}, { terminal: true })).err, /looking: /);
    t.equal((await examined({})).err, '');
  });
});
