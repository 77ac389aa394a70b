// The demo: how it sizes its card, counts and judges; what it draws; and once for real, with three models on a real engine.
import fc from 'fast-check';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { promises, toResult, type DemoResult } from '../../src/cli/demo/result.js';
import { conversation } from '../../src/cli/demo/script.js';
import { chooseCardBytes } from '../../src/cli/demo/sizing.js';
import { HandOffs, median } from '../../src/cli/demo/tally.js';
import { runProgram } from '../../src/cli/program.js';
import { displayWidth } from '../../src/cli/terminal/width.js';
import type { OrchestratorOptions } from '../../src/orchestrator/options.js';
import { tinyModels } from '../../src/orchestrator/shipped-models.js';
import { ledgerState } from './example-views.js';
import { fakeIo, jsonLines, type FakeIoOptions } from './fake-io.js';
import { FakeOrchestrator, type FakeSettings } from './fake-orchestrator.js';

const mebibyte = 1024 ** 2;

t.test('the card holds any two models and never three', async (t) => {
  t.equal(chooseCardBytes([10_886_375, 10_886_375, 10_886_375]), 25 * mebibyte, 'whole MiB where that is possible');
  t.equal(chooseCardBytes([3, 2, 1]), 5, 'to the byte where it is not');
  t.throws(() => chooseCardBytes([5, 5, 0]), /no card holds two/);
  fc.assert(fc.property(fc.array(fc.integer({ min: 1, max: 2 ** 40 }), { minLength: 3, maxLength: 3 }), (charges) => {
    const [largest = 0, second = 0, third = 0] = [...charges].sort((left, right) => right - left);
    const bytes = chooseCardBytes(charges);
    return bytes >= largest + second && bytes < largest + second + third;
  }));
});

t.test('the conversation asks every model in turn, and then all at once', async (t) => {
  const rounds = conversation();
  const turns = rounds.flat();
  t.ok(turns.length >= 9);
  t.strictSame(turns.map(({ number }) => number), turns.map((_, index) => index + 1));
  t.equal(rounds.at(-1)?.length, 3);
  for (const [index, { model, question }] of turns.entries()) {
    if (index > 0 && rounds[index]?.length === 1) t.not(model, turns[index - 1]?.model, 'never the same one twice running');
    t.ok(tinyModels[model].exampleQuestions.some((example) => example.question === question));
  }
  t.equal(new Set(turns.map(({ question }) => question)).size, turns.length, 'no question twice');
});

t.test('a hand-off is from the first order to leave until the grant', async (t) => {
  const handOffs = new HandOffs();
  const event = (name: string, atMs: number, model: string) => { handOffs.take({ name, atUs: atMs * 1000, data: { model, device: 'SIM-1' }, dropped: 0 }); };
  event('granted', 0, 'a');
  event('evicting', 10, 'a');
  event('evicting', 12, 'a');
  event('evicted', 14, 'a');
  event('granted', 17, 'b');
  handOffs.take({ name: 'sample_lost', atUs: 1, data: { device: 'SIM-1' }, dropped: 0 });
  t.strictSame([handOffs.of('b'), handOffs.of('a'), handOffs.evictionsOf('a'), handOffs.grantsOf('a'), handOffs.grantsOf('b')], [[7], [], 1, 1, 1]);
  t.strictSame([median([3, 1, 2]), median([4, 1, 2, 3]), median([])], [2, 2.5, null]);
});

t.test('the figures come from the card, the ledger and the checkers', async (t) => {
  const [card] = ledgerState().cards;
  const device = card?.device ?? '';
  const reading = { device, totalBytes: 48 * mebibyte, usedBytes: 1, peakUsedBytes: 50 * mebibyte, oomRefusals: 2 };
  const counters = { grants: 12, evictions: 9, denials: 1, maxOverReserveBytes: -3 };
  t.strictSame(toResult(ledgerState({ simulatedCards: [reading], counters }), { requests: 10, answered: 9, right: 8 }), {
    requests: 10, answered: 9, answersRight: 8, grants: 12, evictions: 9, denied: 1, overcommittedBytes: 2 * mebibyte, oomRefusals: 2, maxOverReserveBytes: -3,
    deviceBytes: 48 * mebibyte, peakUsedBytes: 50 * mebibyte, peakChargedBytes: 48 * mebibyte - 3,
  });
  t.throws(() => toResult(ledgerState(), { requests: 1, answered: 1, right: 1 }), /simulated card is not in the ledger/);
  t.throws(() => toResult(ledgerState({ simulatedCards: [reading], counters: { grants: 1 } }), { requests: 1, answered: 1, right: 1 }), /no counter maxOverReserveBytes/);
});

t.test('every promise is broken by the figure that it is about, and by no other', async (t) => {
  const good: DemoResult = {
    requests: 18, answered: 18, answersRight: 18, grants: 12, evictions: 9, denied: 0, overcommittedBytes: 0, oomRefusals: 0, maxOverReserveBytes: 0,
    deviceBytes: 26, peakUsedBytes: 20, peakChargedBytes: 26,
  };
  t.strictSame(promises(good).filter(({ kept }) => !kept), []);
  const breaches: readonly (readonly [Partial<DemoResult>, RegExp])[] = [
    [{ requests: 8, answered: 8, answersRight: 8 }, /at least 9 requests/], [{ answered: 17, answersRight: 17 }, /every one was answered/],
    [{ answersRight: 10 }, /answers are right/], [{ evictions: 5 }, /made room for another/], [{ denied: 1 }, /denied/],
    [{ overcommittedBytes: 1 }, /never held more/], [{ oomRefusals: 1 }, /never had to refuse/], [{ maxOverReserveBytes: 1 }, /never promised more/],
    [{ peakUsedBytes: 0 }, /really on the card/],
  ];
  for (const [change, text] of breaches) {
    const broken = promises({ ...good, ...change }).filter(({ kept }) => !kept);
    t.equal(broken.length, 1, JSON.stringify(change));
    t.match(broken[0]?.text, text);
  }
});

t.test('drawn from an orchestrator without processes', async (t) => {
  const answer = (model: string, question: string) => {
    const expected = tinyModels[model]?.exampleQuestions.find((example) => example.question === question)?.expected ?? [];
    if (model !== 'tiny-tales') return `<think>hm, let me add</think>It is ${expected[0] ?? ''}.`;
    return `Once there was a ${expected[0] ?? ''}. It had a ${expected[1] ?? 'friend'}. They were happy for ever and ever, as everybody is in a story.`;
  };

  async function show(args: readonly string[], settings: FakeSettings = {}, options: FakeIoOptions = {}) {
    const io = fakeIo(options);
    const fakes: FakeOrchestrator[] = [];
    const createOrchestrator = async (given: OrchestratorOptions) => {
      const fake = new FakeOrchestrator(given, { answer, ...settings });
      fakes.push(fake);
      return fake;
    };
    const code = await runProgram(['demo', ...args], { io, createOrchestrator });
    return { code, out: io.stdout.text, err: io.stderr.text, fakes };
  }

  t.test('it runs twice on cards of its own, in a folder that is gone afterwards', async (t) => {
    const { code, fakes, err } = await show([]);
    t.strictSame([code, err], [0, '']);
    t.strictSame(fakes.map(({ options, closed }) => [options.broker, options.devices, closed]), [['own', ['sim:1GiB'], true], ['own', [`sim:${27 * mebibyte}`], true]]);
    t.notOk(existsSync(fakes[0]?.options.stateFolder ?? '/'));
  });

  t.test('with --json it ends with the figures and nothing else on that line', async (t) => {
    const { code, out } = await show(['--json']);
    const lines = jsonLines(out);
    t.equal(code, 0);
    t.strictSame(Object.keys(lines.at(-1) ?? {}), [
      'requests', 'answered', 'answersRight', 'grants', 'evictions', 'denied', 'overcommittedBytes', 'oomRefusals', 'maxOverReserveBytes', 'deviceBytes',
      'peakUsedBytes', 'peakChargedBytes',
    ]);
    t.strictSame(lines.slice(0, -1).filter((line) => line['event'] === undefined), []);
    t.match(lines.at(-1), { requests: 18, answered: 18, answersRight: 18, deviceBytes: 27 * mebibyte, overcommittedBytes: 0 });
  });

  t.test('a wrong or missing answer breaks a promise and the exit status says so', async (t) => {
    const wrong = await show(['--json'], { answer: () => 'I do not know.' });
    t.equal(wrong.code, 1);
    t.match(jsonLines(wrong.out).at(-1), { answered: 18, answersRight: 0 });
    const broken = await show([], { answer: () => 'I do not know.' });
    t.match(broken.out, /✗ wrong[^]*✗ broken: the answers are right/);
  });

  t.test('an answer that fails is told and the others are still asked', async (t) => {
    class Failing extends FakeOrchestrator {
      override generate(...args: Parameters<FakeOrchestrator['generate']>) {
        if (args[0] === 'tiny-sums') throw new LeaseholdError('worker_exited', { generation: 'w', how: 'SIGKILL' });
        return super.generate(...args);
      }
    }
    const io = fakeIo();
    const code = await runProgram(['demo'], { io, createOrchestrator: async (options) => new Failing(options, { answer }) });
    t.equal(code, 1);
    t.match(io.stdout.text, /✗ worker_exited: Worker w ended \(SIGKILL\)/);
    t.match(io.stdout.text, /tiny-sums +6 +0 +0 /);
  });

  t.test('a question that Ctrl-C ends has been stopped, and is no failure', async (t) => {
    const io = fakeIo({ terminal: true });
    const ended = runProgram(['demo'], { io, createOrchestrator: async (options) => new FakeOrchestrator(options, { answer, endless: true }) });
    await io.wrote('Once there was');
    io.stop('SIGINT');
    t.equal(await ended, 130);
    t.match(io.stdout.text, / {4}.*stopped/);
    t.notMatch(io.stdout.text, /✗|request_cancelled/);
  });

  t.test('without a terminal it is plain lines: question, answer, a bar, and a table at the end', async (t) => {
    const { out } = await show([]);
    t.notMatch(out, /\u001B/);
    t.match(out, /^Loading 3 models once/);
    t.match(out, / 2 {2}tiny-sums {3}What is 47 \+ 38\?\n {4}hm, let me add\n {4}It is 85\.\n {4}✓ right · loaded in 120 ms · \d+ tokens · \d+ ms in all\n {4}│ tiny-tales +│ tiny-sums +│·+│ {2}22\.0 MiB of 27\.0 MiB charged\n/);
    t.equal(out.split('From here on questions are asked at once').length, 2, 'said once, before the first that may be out of turn');
    t.match(out, /MODEL +ASKED +ANSWERED +RIGHT +TOKENS +GRANTS +EVICTED +HAND-OFF +LONGEST\n/);
    t.match(out, /\nall +18 +18 +18 /);
    t.strictSame(out.split('\n').filter((line) => displayWidth(line) > 80), []);
  });

  t.test('a log that is asked for scrolls by above the picture, on whichever stream it comes', async (t) => {
    class Talkative extends FakeOrchestrator {
      override generate(...args: Parameters<FakeOrchestrator['generate']>) {
        this.options.log?.info({ model: args[0] }, 'asked');
        return super.generate(...args);
      }
    }
    const io = fakeIo({ terminal: true, env: { NO_COLOR: '1' } });
    await runProgram(['demo', '--log-level', 'info'], { io, createOrchestrator: async (options) => new Talkative(options, { answer }) });
    t.equal(io.stderr.text, '', 'nothing is written into the picture');
    const frames = io.stdout.text.split('\u001B[?2026h').filter((frame) => frame.includes(' info  asked'));
    t.equal(frames.length, 18);
    for (const frame of frames) t.match(frame, /^\r(\u001B\[\d+A)?\u001B\[J\d\d:\d\d:\d\d info {2}asked model=[^\n]*\n[^]*─{80}[^]*answered[^]*\u001B\[\?2026l/);
  });

  t.test('on a terminal no line is wider than it, and the cursor comes back', async (t) => {
    for (const columns of [40, 80, 120]) {
      const { out, code } = await show([], {}, { terminal: true, columns });
      const lines = out.split(/\n|\u001B\[J|\r/);
      t.equal(code, 0);
      // The table of figures has a least width; below it, it is cut by the terminal.
      t.strictSame(lines.filter((line) => displayWidth(line) > Math.max(columns, 78)), []);
      t.match(out, /✓ right/);
      t.ok(out.endsWith('\u001B[?25h'));
    }
  });
});

t.test('for real: three models take turns, every answer is right, and the card is never over-committed', async (t) => {
  const main = join(dirname(fileURLToPath(import.meta.url)), '../../bin/leasehold.js');
  const child = spawn(process.execPath, [main, 'demo', '--json'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => { out += text; });
  child.stderr.setEncoding('utf8').on('data', (text: string) => { err += text; });
  const [code] = await once(child, 'close') as [number | null];
  t.strictSame([code, err], [0, '']);
  const lines = jsonLines(out);
  const result = lines.at(-1) as unknown as DemoResult;
  t.match(result, { requests: 18, answered: 18, denied: 0, overcommittedBytes: 0, oomRefusals: 0 });
  t.ok(result.answersRight >= 17, `${result.answersRight} of 18 are right`);
  t.ok(result.evictions >= 6, `${result.evictions} evictions`);
  t.ok(result.maxOverReserveBytes <= 0 && result.peakChargedBytes <= result.deviceBytes, 'never promised more than there is');
  t.ok(result.peakUsedBytes > 0 && result.peakUsedBytes <= result.deviceBytes, 'models were on the card, and fitted');
  t.ok(result.grants >= result.evictions + 2 && result.grants <= result.evictions + 3, 'what was granted was evicted, or is still there');
});
