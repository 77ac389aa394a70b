// What the CLI draws: sizes, widths, bars, tables, progress, and whole views at fixed widths. All of it pure.
import fc from 'fast-check';
import t from 'tap';
import type { ExplainRecord } from '../../src/orchestrator/index.js';
import type { Stage } from '../../src/orchestrator/types.js';
import { renderBar, renderProgress, shareCells, type Stretch } from '../../src/cli/terminal/bars.js';
import { describeStage } from '../../src/cli/commands/stage-text.js';
import { createPalette, wantsColour } from '../../src/cli/terminal/colour.js';
import { LiveArea } from '../../src/cli/terminal/live-area.js';
import { createTerminalLog } from '../../src/cli/terminal/log-lines.js';
import { createStatusLine } from '../../src/cli/terminal/progress.js';
import { formatBytes, formatCount, formatMs, formatOrdinal } from '../../src/cli/terminal/size-format.js';
import { LeaseholdError } from '../../protocol/index.js';
import { reportError, writeJson, writeLine } from '../../src/cli/report.js';
import { writeAbove } from '../../src/cli/terminal/standing.js';
import { renderTable, tableColumns } from '../../src/cli/terminal/table.js';
import { displayWidth, pad, truncate, truncateMiddle, withoutControls, wrap } from '../../src/cli/terminal/width.js';
import { overshootBytes, renderCard } from '../../src/cli/views/card-view.js';
import { renderErrors } from '../../src/cli/views/estimate-view.js';
import { renderExplain } from '../../src/cli/views/explain-view.js';
import { renderLedger } from '../../src/cli/views/ledger-view.js';
import { createNames, shortDevice } from '../../src/cli/views/names.js';
import { cardView, explainRecord, ledgerState } from './example-views.js';
import { fakeIo } from './fake-io.js';

const plain = createPalette(false);
const coloured = createPalette(true);

t.test('sizes and times are short, exact about nothing and unknown, and never say 1024 of a unit', async (t) => {
  const sizes: readonly (readonly [number | null, string])[] = [
    [null, 'unknown'], [0, '0'], [1, '1 B'], [1023, '1023 B'], [1024, '1.0 KiB'], [1536, '1.5 KiB'], [1048524, '1023.9 KiB'], [1048575, '1.0 MiB'],
    [11_429_478, '10.9 MiB'], [2 ** 40, '1.0 TiB'], [Number.MAX_SAFE_INTEGER, '8.0 PiB'], [-3 * 1024 ** 2, '-3.0 MiB'],
  ];
  for (const [bytes, text] of sizes) t.equal(formatBytes(bytes), text);
  const times: readonly (readonly [number | null, string])[] = [
    [null, '-'], [0, '0 ms'], [85.4, '85 ms'], [999.4, '999 ms'], [999.6, '1.0 s'], [1_240, '1.2 s'], [59_949, '59.9 s'], [59_951, '1 m 00 s'],
    [125_000, '2 m 05 s'], [3_599_600, '1 h 00 m'], [11_040_000, '3 h 04 m'], [183_600_000, '2 d 03 h'],
  ];
  for (const [ms, text] of times) t.equal(formatMs(ms), text);
  t.strictSame([1, 2, 3, 4, 11, 12, 13, 21, 101, 112].map(formatOrdinal), ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '101st', '112th']);
  t.strictSame([formatCount(1, 'grant'), formatCount(0, 'grant')], ['1 grant', '0 grants']);
});

t.test('text is measured by the columns it fills', async (t) => {
  t.equal(displayWidth('abc'), 3);
  t.equal(displayWidth('日本語'), 6);
  t.equal(displayWidth('e\u0301'), 1, 'a combining mark');
  t.equal(displayWidth('\u001B[31mred\u001B[39m'), 3);
  t.equal(displayWidth('🙂'), 2);
  t.strictSame([truncateMiddle('coder-v2-large', 9), truncateMiddle('coder-v2-small', 9), truncateMiddle('abc', 3), truncateMiddle('日本語日本', 6), truncateMiddle('abc', 1), truncateMiddle('abc', 0)], ['code…arge', 'code…mall', 'abc', '日…本', '…', '']);
  t.strictSame([truncate('abcdef', 4), truncate('abc', 3), truncate('日本語', 4), truncate('abc', 0)], ['abc…', 'abc', '日…', '']);
  t.strictSame([pad('日', 4), pad('7', 3, 'right'), pad('long', 2)], ['日  ', '  7', 'long']);
  t.strictSame(wrap('the quick brown fox\njumps', 10), ['the quick', 'brown fox', 'jumps']);
  t.strictSame(wrap('abcdefghij klm', 4), ['abcd', 'efgh', 'ij', 'klm'], 'a word longer than the line');
  t.strictSame(wrap('22\u00A0MiB and', 6), ['22\u00A0MiB', 'and'], 'never at a no-break space');
  t.strictSame(wrap('  owns SIM-1, a simulated card', 20, 4), ['  owns SIM-1, a', '    simulated card'], 'what follows is indented');
  t.strictSame(wrap('tell this to them all, please', 18, 7), ['tell this to them', '  all, please'], 'by less where too little room would be left');
  t.strictSame(wrap('\u001B[33mabcdefgh\u001B[39m ij', 6), ['\u001B[33mabcdef', 'gh\u001B[39m ij'], 'colours take no room and are not cut');
  t.equal(withoutControls('a\u001B[2Jb\u0007c\td\ne\u009Bf\r'), 'a[2Jbc\td\nef');
  t.equal(withoutControls('a\u2028b\u2029c\u200Fd\uFEFFe\u061Cf\u200Bg'), 'a\nb\ncdefg', 'every line end is one that is looked for, and nothing hides');
  fc.assert(fc.property(fc.string({ unit: 'grapheme' }), fc.integer({ min: 2, max: 40 }), (text, columns) => {
    const line = withoutControls(text);
    return wrap(line, columns).every((part) => displayWidth(part) <= columns) && displayWidth(truncate(line.replaceAll('\n', ''), columns)) <= columns;
  }));
});

t.test('whatever is written keeps to the width of a terminal, and is whole elsewhere', async (t) => {
  const error = new LeaseholdError('broker_lost', { reason: 'it ended' }, { help: 'Start one with `leasehold up`, or name the state folder of one that runs with --state.' });
  const told = (terminal: boolean, columns: number) => {
    const io = fakeIo({ terminal, columns });
    reportError(io, plain, error, false);
    writeLine(io, '  owns SIM-1  simulated card, 26.0 MiB, 0 kept free');
    writeAbove(io.stderr, '14:03:59  tiny-facts loaded on SIM-1', 10);
    return (io.stderr.text + io.stdout.text).split('\n').filter((line) => line !== '');
  };
  t.strictSame(told(true, 40), [
    'error: The broker is gone: it ended.', '  help: Start one with `leasehold up`,', '        or name the state folder of one', '        that runs with --state.',
    '14:03:59  tiny-facts loaded on SIM-1', '  owns SIM-1  simulated card, 26.0 MiB,', '    0 kept free',
  ]);
  for (const columns of [20, 40, 80, 100]) t.ok(told(true, columns).every((line) => displayWidth(line) <= columns), `${String(columns)} columns`);
  t.ok(told(false, 40).includes('  help: Start one with `leasehold up`, or name the state folder of one that runs with --state.'), 'nothing is broken for a file or a program');
});

t.test('what strangers name neither colours a line of ours nor begins one', async (t) => {
  const stranger = 'x\nerror: forged\u001B[31m\u202Etxt';
  const error = new LeaseholdError('model_invalid', { source: stranger, reason: 'it is none', more: `first\u001B[2J\n${stranger}` }, { help: `Look at ${stranger}.` });
  // As one that was put together here may be.
  error.message = `${stranger} cannot be used.`;
  const io = fakeIo();
  reportError(io, coloured, error, false);
  const { text } = io.stderr;
  t.strictSame(text.match(/\u001B\[\d+m/g), ['\u001B[31m', '\u001B[39m', '\u001B[2m', '\u001B[22m'], 'no colour but our own');
  t.notMatch(text, /[\u202A-\u202E]/);
  t.equal(text.split('\n').filter((line) => /^\S/.test(line)).length, 1, 'one line begins at the edge');
  const json = fakeIo();
  const value = { said: 'a\u009B31mb\u202Ec\u2028d\u0085\uFEFF' };
  writeJson(json, value);
  t.match(json.stdout.text, /^[ -~]+\n$/, 'nor does JSON');
  t.strictSame(JSON.parse(json.stdout.text), value);
  t.strictSame(renderTable([{ title: 'MODEL' }], [[stranger]], 80, plain), ['MODEL', 'x error: forged[31mtxt']);
});

t.test('colour is used on a terminal alone, unless the environment says otherwise', async (t) => {
  t.strictSame([wantsColour(true, {}), wantsColour(false, {})], [true, false]);
  t.equal(wantsColour(true, { NO_COLOR: '1' }), false);
  t.equal(wantsColour(true, { NO_COLOR: '' }), true, 'empty is not set');
  t.equal(wantsColour(true, { TERM: 'dumb' }), false);
  t.equal(wantsColour(false, { FORCE_COLOR: '1' }), true);
  t.equal(wantsColour(false, { FORCE_COLOR: '1', NO_COLOR: '1' }), false, 'no is stronger');
  t.equal(plain.red('x') + plain.on('model', 3)('y'), 'xy');
  t.match(coloured.red('x'), /^\u001B\[31mx\u001B\[39m$/);
});

t.test('bars', async (t) => {
  const stretch = (label: string, bytes: number, tone: Stretch['tone'] = 'model', index = 0): Stretch => ({ label, bytes, tone, index });

  t.test('share their cells by size, and whatever is there is seen', async (t) => {
    t.strictSame(shareCells([50, 25, 25], 8), [4, 2, 2]);
    t.strictSame(shareCells([1, 1, 1], 10).reduce((sum, cells) => sum + cells, 0), 10);
    t.strictSame(shareCells([1_000_000, 1, 0], 10), [9, 1, 0]);
    t.strictSame(shareCells([0, 0], 10), [0, 0]);
    fc.assert(fc.property(fc.array(fc.nat(1_000_000), { minLength: 1, maxLength: 12 }), fc.integer({ min: 12, max: 200 }), (bytes, cells) => {
      const shared = shareCells(bytes, cells);
      const total = shared.reduce((sum, part) => sum + part, 0);
      return bytes.some((part) => part > 0) ? total === cells && bytes.every((part, index) => (part > 0) === ((shared[index] ?? 0) > 0)) : total === 0;
    }));
  });

  t.test('have their width to the column, names inside where they fit', async (t) => {
    const stretches = [stretch('tiny-tales', 11), stretch('tiny-sums', 11, 'model', 1), stretch('held', 1, 'hold'), stretch('gone', 0, 'residue'), stretch('free', 5, 'free')];
    t.equal(renderBar(stretches, 40, plain), '│ tiny-tales   │ tiny-sums    │~│······│');
    for (const palette of [plain, coloured]) {
      for (const columns of [8, 20, 41, 80, 120]) t.equal(displayWidth(renderBar(stretches, columns, palette)), columns, `${columns} columns`);
    }
    t.match(renderBar(stretches, 40, coloured), /48;5;25m tiny-tales/);
  });

  t.test('of progress have eighths of a cell', async (t) => {
    t.strictSame([0, 0.5, 0.53125, 1, 7].map((fraction) => renderProgress(fraction, 4)), ['░░░░', '██░░', '██▏░', '████', '████']);
  });
});

t.test('tables fit, and give way only where they may', async (t) => {
  const columns = [{ title: 'MODEL', shrinkTo: 6 }, { title: 'BYTES', align: 'right' }] as const;
  t.strictSame(renderTable(columns, [['tiny-tales', '10.9 MiB'], ['x', '0']], 80, plain), ['MODEL          BYTES', 'tiny-tales  10.9 MiB', 'x                  0']);
  t.strictSame(renderTable(columns, [['tiny-tales', '10.9 MiB']], 17, plain), ['MODEL       BYTES', 'tiny-t…  10.9 MiB'], 'cut to the width');
  t.strictSame(renderTable([...columns, { title: 'AS' }], [['tiny-tales', '10.9 MiB', '-'], ['x', '-', '-']], 19, plain), ['MODEL    tiny-tales', '  BYTES  10.9 MiB', 'MODEL    x'], 'a list where not even the least fits, without what says nothing');
  t.strictSame(renderTable([...columns, { title: 'ALIASES' }], [['tiny-tales', '1', '']], 17, plain), ['MODEL       BYTES', 'tiny-tales      1'], 'an empty column is the first to go');
  const told = [{ title: 'PART' }, { title: 'HOW', shrinkTo: 8, keeps: 'all' }] as const;
  t.strictSame(renderTable(told, [['weights', 'by the engine itself'], ['kv', 'f16']], 22, plain, (row) => (row === 0 ? ['  below'] : [])),
    ['PART     HOW', 'weights  by the engine', '         itself', '  below', 'kv       f16'], 'a sentence is broken, not cut');
  const long = [{ title: 'MODEL' }, { title: 'SOURCE', shrinkTo: 30, keeps: 'end' }] as const;
  t.strictSame(renderTable(long, [['tiny-facts', '/models/tiny-facts/tiny-facts-f16.gguf']], 30, plain), ['MODEL     tiny-facts', '  SOURCE  …tiny-facts-f16.gguf'], 'of a path its end, in a list too');
  t.strictSame(renderTable(columns, [], 80, plain), []);
  const path = [{ title: 'SOURCE', shrinkTo: 6, keeps: 'end' }, { title: 'N' }] as const;
  t.equal(renderTable(path, [['/models/wide/漢字.gguf', '1']], 15, plain)[1], '…e/漢字.gguf  1', 'of a path its end is kept');
  t.equal(tableColumns({ isTerminal: true, columns: 40 }), 40);
  t.equal(renderTable(path, [['/models/wide/漢字.gguf', '1']], tableColumns({ isTerminal: false, columns: 10 }), plain)[1], '/models/wide/漢字.gguf  1', 'nothing is cut for a file or a program');
});

t.test('progress is one line on a terminal, and a line for each change elsewhere', async (t) => {
  const terminal = fakeIo({ terminal: true, columns: 40 }).stdout;
  const line = createStatusLine(terminal, plain);
  line.show('loading a model with a name that is far too long', 0.5);
  line.show('loading a model with a name that is far too long', 0.5);
  line.clear();
  line.clear();
  t.equal(terminal.text, '\r\u001B[Kloading a model… ████████░░░░░░░░  50 %\r\u001B[K');
  const file = fakeIo().stdout;
  const lines = createStatusLine(file, plain);
  for (const fraction of [0.1, 0.2, null]) lines.show('loading\na\u001B[2J', fraction);
  lines.show('prefill', null);
  t.equal(file.text, 'loading a[2J\nprefill\n');
  const dumb = fakeIo({ terminal: true, env: { TERM: 'dumb' } }).stdout;
  createStatusLine(dumb, plain).show('loading', 0.5);
  t.equal(dumb.text, 'loading\n', 'a terminal that knows no more than lines gets lines');
});

t.test('the live area draws over itself and nothing else', async (t) => {
  const output = fakeIo({ terminal: true }).stdout;
  const area = new LiveArea(output);
  area.draw(['one', 'two']);
  const once = output.text.length;
  area.draw(['one', 'two']);
  t.equal(output.text.length, once, 'the same picture is not drawn twice');
  area.draw(['three'], ['done']);
  area.end();
  area.end();
  t.match(output.text.slice(once), /\r\u001B\[1A\u001B\[Jdone\nthree/, 'goes up one line, and what is finished stays above');
  t.ok(output.text.endsWith('\n\u001B[?25h'), 'the cursor is back');
  const tall = fakeIo({ terminal: true }).stdout;
  new LiveArea(tall).draw(Array.from({ length: 100 }, (_, index) => `line ${index}`));
  t.notMatch(tall.text, /line 76/, 'never taller than the terminal');
  t.match(tall.text, /line 77\n/);
  const narrow = fakeIo({ terminal: true, columns: 20 }).stdout;
  const wide = new LiveArea(narrow);
  wide.draw(['a line of more than twenty', 'short']);
  const drawn = narrow.text.length;
  wide.draw(['x'], ['finished in more than twenty columns']);
  t.match(narrow.text.slice(drawn), /\r\u001B\[2A\u001B\[Jfinished in more\n  than twenty\n  columns\nx/, 'a line that has no room goes on in the next, and is drawn over whole');
  Object.assign(narrow, { columns: 60 });
  wide.draw(['y'.repeat(60)]);
  Object.assign(narrow, { columns: 20 });
  const before = narrow.text.length;
  wide.draw(['z']);
  t.match(narrow.text.slice(before), /\r\u001B\[2A\u001B\[Jz/, 'also where the terminal was made narrower meanwhile');
});

t.test('what a log writes goes above the live area, by whichever stream, as long as it stands', async (t) => {
  const { stdout, stderr } = fakeIo({ terminal: true });
  const log = createTerminalLog('info', stderr, plain, () => new Date(2026, 0, 1, 9, 8, 7));
  const area = new LiveArea(stdout, [stderr]);
  log.info({}, 'before');
  area.draw(['one', 'two']);
  const before = stdout.text.length;
  log.warn({ card: 'SIM-1' }, 'meanwhile');
  t.match(stdout.text.slice(before), /^\u001B\[\?2026h\r\u001B\[1A\u001B\[J09:08:07 warn {2}meanwhile card=SIM-1\none\ntwo\u001B\[\?2026l$/, 'up over the picture, the line, the picture again');
  area.draw(['three']);
  area.end();
  log.info({}, 'after');
  t.equal(stderr.text, '09:08:07 info  before\n09:08:07 info  after\n', 'by itself when nothing stands');
});

t.test('a card', async (t) => {
  const names = createNames([]);

  t.test('shows every kind of charge, by size, with marks that colour is not needed for', async (t) => {
    const mebibyte = 1024 ** 2;
    const card = cardView({
      reserveBytes: 2 * mebibyte, floorBytes: mebibyte, residueBytes: mebibyte, returningBytes: mebibyte, holdBytes: 3 * mebibyte, foreignBytes: 2 * mebibyte,
    });
    t.strictSame(renderCard(card, ledgerState().leases, names, 80, plain), [
      'GPU-5f3c9a1e  NVIDIA H200 · 48.0 MiB',
      '  25.0 MiB charged; 22.5 MiB used when read by nvml 120 ms ago',
      ' │ tales@llama#1  │ sums@llama#2   │=│!│<│~~~~│xx│·························│##│',
      ' □ tales@llama#1 11.0 MiB   □ sums@llama#2 11.0 MiB   = floors 1.0 MiB',
      ' ! residue 1.0 MiB   < returning 1.0 MiB   ~ held 3.0 MiB   x foreign 2.0 MiB',
      ' · free 16.0 MiB   # reserve 2.0 MiB',
    ]);
  });

  t.test('says what is unknown, unverified, silent or too much', async (t) => {
    const head = (changes: Parameters<typeof cardView>[0]) => renderCard(cardView(changes), [], names, 100, plain);
    t.match(head({ truth: null, sampledUsedBytes: null })[0], /not measured yet/);
    t.match(head({ truth: 'ledger' })[0], /unverified: the ledger alone/);
    t.match(head({ missing: { reading: 'timed_out', reason: 'no answer', sinceMs: 61_000 } })[0], /no reading for 1 m 01 s \(timed_out\)/);
    t.match(head({ lost: { reason: 'GPU is lost', sinceMs: 61_000 } })[0], /lost 1 m 01 s ago: GPU is lost/);
    t.match(head({ leasedBytes: 60 * 1024 ** 2 }).at(-1), /over its limit by 12\.0 MiB/);
    t.equal(overshootBytes(cardView({ foreignBytes: null })), 0);
    const yields = { freeBytes: 2 * 1024 ** 2, pressed: null, blind: null };
    t.equal(head({ yields }).at(-1), ' gives way to other programs until 2.0 MiB are free');
    const pressed = { sinceMs: 1_500, strangersBytes: 9 * 1024 ** 2, strangers: [{ pid: 4711, usedBytes: 8 * 1024 ** 2 }] };
    t.equal(head({ yields: { ...yields, pressed } }).slice(-2).join(''), ' gives way to other programs until 2.0 MiB are free: for 1.5 s they press, with 9.0 MiB (pid 4711 8.0 MiB)');
    t.match(head({ yields: { ...yields, blind: 'it cannot be read' } }).at(-1), / until 2\.0 MiB are free, and cannot: it cannot be read$/);
    t.strictSame(head({ kind: 'cpu', device: 'CPU-0', totalBytes: 0 }), ['CPU-0  CPU, nothing is leased there']);
  });

  t.test('has a head of several lines where one is too narrow', async (t) => {
    const lines = renderCard(cardView({}), [], names, 42, plain);
    t.strictSame(lines.slice(0, 3), ['GPU-5f3c9a1e  NVIDIA H200 · 48.0 MiB', '  22.0 MiB charged; 22.5 MiB used when', '  read by nvml 120 ms ago']);
    t.ok(lines.every((line) => displayWidth(line) <= 42));
  });
});

t.test('the ledger', async (t) => {
  const names = createNames([{ name: 'tales', aliases: [], key: 'tales@llama#1', engine: 'llama', source: '', contextTokens: 1, preload: false }]);

  t.test('is cards, leases, who waits and processes, in the names that people gave', async (t) => {
    t.strictSame(renderLedger(ledgerState(), { names, columns: 80, tableColumns: 80, palette: plain }), [
      'GPU-5f3c9a1e  NVIDIA H200 · 48.0 MiB',
      '  22.0 MiB charged; 22.5 MiB used when read by nvml 120 ms ago',
      ' │ tales           │ sums@llama#2   │·········································│',
      ' □ tales 11.0 MiB   □ sums@llama#2 11.0 MiB   · free 26.0 MiB',
      '',
      'MODEL         STATE              CHARGED  RESIDENT  CALLS   IDLE  BY',
      'tales         resident, pinned  11.0 MiB  10.0 MiB      2      -  w1',
      'sums@llama#2  resident          11.0 MiB  10.0 MiB      0  4.2 s  w2',
      '',
      'WAITING  BEFORE  CLASS      NEEDS     HELD  SINCE',
      'facts         0  normal  27.0 MiB  4.0 MiB  1.5 s',
      '  tales must end its calls first; at most 1 m 35 s more behind others',
      '',
      'PROCESS  ROLE    ENGINE  STATE   PID  THREADS    FLOOR  CARDS',
      'w1       worker  llama   ready  4712        1  1.0 MiB  GPU-5f3c9a1e',
      's3       holder  -       ready  4713        -        0  GPU-5f3c9a1e',
      '',
      'broker pid 4711  /run/leasehold/broker.sock',
    ]);
  });

  t.test('R293: says whose loop was blocked, for how long and when', async (t) => {
    const state = ledgerState();
    const lines = renderLedger({
      ...state, broker: { ...state.broker, loopBlocked: { blockedMs: 1_500, agoMs: 40_000 } }, workers: state.workers.map((worker) => ({ ...worker, loopBlocked: { blockedMs: 3_200, agoMs: 12_000 } })),
    }, { names, columns: 120, tableColumns: 120, palette: plain });
    t.match(lines.find((line) => line.startsWith('w1')), /ready, loop blocked for 3\.2 s until 12\.0 s ago +4712/);
    t.equal(lines.at(-1), '  its own loop blocked for 1.5 s until 40.0 s ago');
    t.match(renderLedger({ ...state, workers: state.workers.map((worker) => ({ ...worker, loopBlocked: null })) }, { names, columns: 120, tableColumns: 120, palette: plain }).join('\n'), /w1 +worker +llama +ready +4712/);
  });

  t.test('has the machine’s memory as one more bar where it is leased, and what each process has of it', async (t) => {
    const { leases, waiting, processes } = ledgerState();
    const host = cardView({
      device: 'HOST-0', name: 'memory of the machine', kind: 'host', totalBytes: 1024 ** 3, reserveBytes: 256 * 1024 ** 2, leasedBytes: 33 * 1024 ** 2, floorBytes: 64 * 1024 ** 2,
      foreignBytes: 512 * 1024 ** 2, sampledUsedBytes: 600 * 1024 ** 2, truth: 'system',
    });
    const state = ledgerState({
      host, leases: leases.map((lease, index) => ({ ...lease, hostBytes: index * 30 * 1024 ** 2, hostChargedBytes: index * 33 * 1024 ** 2 })),
      waiting: waiting.map((waiter) => ({ ...waiter, hostNeedBytes: 8 * 1024 ** 2 })),
      processes: processes.map((process, index) => ({ ...process, memoryBytes: index === 0 ? 80 * 1024 ** 2 : null })),
    });
    const lines = renderLedger(state, { names, columns: 100, tableColumns: 100, palette: plain });
    t.equal(lines[4], 'HOST-0  memory of the machine · 1.0 GiB');
    t.match(lines[5], /97\.0 MiB charged; 600\.0 MiB used when read by system 120 ms ago/);
    t.match(lines[6], /^ │.*foreign/);
    t.match(lines.slice(7, 9).join(''), /sums@llama#2 33\.0 MiB {3}= floors 64\.0 MiB {3}x foreign 512\.0 MiB {3}· free 159\.0 MiB.*reserve 256\.0 MiB/);
    t.match(lines.join('\n'), /sums@llama#2 +resident, 30\.0 MiB in RAM/);
    t.match(lines.join('\n'), /27\.0 MiB \+ 8\.0 MiB RAM/);
    t.match(lines.join('\n'), /FLOOR +RAM +CARDS\nw1 .* 80\.0 MiB +GPU/);
  });

  t.test('says of a card that thrashes who takes turns, what is lacking, and what can be done', async (t) => {
    const mebibyte = 1024 ** 2;
    const thrashing = { sinceMs: 9_000, shareOfTime: 0.4, windowMs: 120_000, models: [{ model: 'tales@llama#1', loads: 2, loadMs: 8_000 }, { model: 'sums@llama#2', loads: 1, loadMs: 4_000 }], neededBytes: 54 * mebibyte, capacityBytes: 48 * mebibyte };
    const drawn = renderLedger(ledgerState({ cards: [cardView({ thrashing })] }), { names, columns: 200, tableColumns: 200, palette: plain }).join('\n');
    t.match(drawn, / thrashes: 40 % of the last 2 m 00 s went into loading again what had been put away for each other: tales \(2 times, 8\.0 s\), sums@llama#2 \(once, 4\.0 s\); 6\.0 MiB are lacking for all of them to\s+stay/);
    t.match(drawn.replaceAll(/\s+/g, ' '), /smaller context or fewer slots, another card \(devices\), or a smaller file; pin the one that must stay \(leasehold pin MODEL\); or class: background/);
    t.notMatch(renderLedger(ledgerState(), { names, columns: 200, tableColumns: 200, palette: plain }).join('\n'), /thrashes/);
  });

  t.test('fits the terminal, names the card of each lease where there are several, and is quiet when empty', async (t) => {
    const two = ledgerState({ cards: [cardView({}), cardView({ device: 'SIM-0a1b2c3d-1' })] });
    for (const columns of [60, 80, 120]) {
      const lines = renderLedger(two, { names, columns, tableColumns: columns, palette: coloured });
      // Ids and sizes are never cut: below 80 columns a table may be wider than the terminal.
      if (columns >= 80) t.strictSame(lines.filter((line) => displayWidth(line) > columns), []);
      t.match(lines.join('\n'), /CARD/);
    }
    const leases = two.leases.map((lease, index) => ({ ...lease, gang: 'w', model: 'tales@llama#1', generation: 'b-w1', device: two.cards[index]?.device ?? '', pinned: false }));
    const spread = renderLedger({ ...two, leases: [...leases, { ...two.leases[1]!, misplacedOn: 'SIM-0a1b2c3d-1' }] }, { names, columns: 120, tableColumns: 120, palette: plain }).join('\n');
    t.match(spread, /tales +GPU-5f3c9a1e +resident, 1 of 2 /, 'one model over several cards');
    t.match(spread, /tales +SIM-0a1b2c3d-1 +resident, 2 of 2 /);
    t.match(spread, /sums@llama#2 +GPU-5f3c9a1e +resident, its bytes are on SIM-0a1b2c3d-1 /);
    const empty = renderLedger(ledgerState({ leases: [], waiting: [], processes: [] }), { names, columns: 80, tableColumns: 80, palette: plain });
    t.strictSame(empty.slice(-3), ['No model is loaded.', '', 'broker pid 4711  /run/leasehold/broker.sock']);
  });
});

t.test('sizes that were learned on a simulated card tell its size as people read it', async (t) => {
  const learned = { name: 'facts', source: '/m/facts.gguf', engine: 'llama', card: 'simulated card of 27262976 bytes', contextTokens: 8_192, estimatedBytes: 1024 ** 2, measuredBytes: 1024 ** 2, error: 0, loads: 1 } as unknown as Parameters<typeof renderErrors>[0][number];
  t.match(renderErrors([learned, { ...learned, contextTokens: 512 }], { columns: 120, palette: plain }).join('\n'), /context [^\n]*\nfacts +llama +simulated card of 26\.0 MiB +8192 [^\n]*\nfacts +llama +simulated card of 26\.0 MiB +512 /);
});

t.test('an explain record', async (t) => {
  const names = createNames([]);
  const render = (record: ExplainRecord) => renderExplain(record, { names, columns: 80, tableColumns: 80, palette: plain, nowUs: record.atUs + 3_000_000 });

  t.test('is a verdict, a sentence, the sum as it was made, and who was considered', async (t) => {
    t.strictSame(render(explainRecord({})), [
      'WAITING  facts@llama#3 · GPU-5f3c9a1e · normal · waited 1.5 s · 3.0 s ago · b-x7',
      '  facts@llama#3 needs 27.0 MiB and 26.0 MiB are available: tales@llama#1 is',
      '  being put away.',
      '',
      '  asked for  24.0 MiB  sum of parts',
      '  needed     27.0 MiB  1.1 times, and 1.0 MiB for the process',
      '  card       48.0 MiB  read by nvml',
      '  reserve           0  kept free',
      '  charged    22.0 MiB  leases, floors, residue, returning',
      '  held              0  for others who wait',
      '  foreign     unknown  of other programs',
      '  used       22.5 MiB  as the card says, read 120 ms before',
      '  available  26.0 MiB  1.0 MiB short',
      '  evictable  11.0 MiB  of models that may be put away, and are not leaving',
      '                       already',
      '',
      '  CONSIDERED        FREES    COST  VERDICT',
      '  tales@llama#1  11.0 MiB  120 ms  chosen: unload',
      '  sums@llama#2   11.0 MiB  900 ms  passed over: it is pinned',
      '  process w9      1.0 MiB   40 ms  passed over: others cost less',
    ]);
  });

  t.test('says when it is the card that leaves less than the ledger would, and why nobody could be chosen', async (t) => {
    const record = explainRecord({});
    const lines = render({ ...record, numbers: { ...record.numbers!, chargedBytes: 12 * 1024 ** 2 }, victims: record.victims.slice(0, 2).map((victim, index) => ({ ...victim, passedOver: index === 0 ? 'insufficient' : 'not_answering' })) });
    t.match(lines.join('\n'), '  available  26.0 MiB  1.0 MiB short; 36.0 MiB by the ledger, less by what the\n                       card reads used');
    t.match(lines.slice(-2), [/passed over: all that may go is too little$/, /passed over: it did not give way when asked$/]);
  });

  t.test('of a model that is loaded and grows says by what, and makes no sum where nothing is leased', async (t) => {
    const record = explainRecord({ verdict: 'evicting' });
    const lines = (changes: object) => render({ ...record, numbers: { ...record.numbers!, ...changes }, victims: [] });
    const MiB = 1024 ** 2;
    t.ok(lines({ requestedBytes: 21 * MiB, needBytes: 9 * MiB, floorBytes: 0 }).includes('  needed      9.0 MiB  9.0 MiB more than it holds: it is loaded, and grows'));
    t.ok(lines({ requestedBytes: 20 * MiB, needBytes: 22 * MiB, floorBytes: 0 }).includes('  needed     22.0 MiB  1.1 times'));
    t.strictSame(lines({ totalBytes: 0, availableBytes: 0, truth: 'ledger' }).slice(-2), ['', '  no sum was made: nothing is leased on a card without memory of its own']);
  });

  t.test('that waits says who leaves for it already', async (t) => {
    const record = explainRecord({});
    const lines = renderExplain({ ...record, numbers: { ...record.numbers!, evictableBytes: 0 }, victims: [] }, { names, columns: 80, tableColumns: 80, palette: plain, nowUs: null, chosenBefore: ['tales@llama#1'] });
    t.strictSame(lines.slice(-2), ['  evictable         0  of models that may be put away, and are not leaving', '                       already; for this one before: tales@llama#1']);
  });

  t.test('leaves out what it does not have', async (t) => {
    t.strictSame(render(explainRecord({ verdict: 'cancelled', text: 'It went away.', model: null, device: null, class: null, waitedMs: 0, numbers: null, victims: [], unverified: true })), [
      'CANCELLED  3.0 s ago · b-x7', '  It went away.', '  Unverified: it rests on the ledger alone, no probe answered.',
    ]);
  });
});

t.test('a stage is told in plain words', async (t) => {
  const names = createNames([{ name: 'sums', aliases: [], key: 'sums@llama#2', engine: 'llama', source: '', contextTokens: 1, preload: false }]);
  const said = (stage: Stage['stage'], text: string) => describeStage('facts', { stage, text, progress: null, explain: null }, names);
  t.equal(said('placing', 'Waiting for a worker: 0123456789ab-w1 is starting'), 'finding a worker for facts: its worker is starting');
  t.equal(said('placing', 'finding a worker'), 'finding a worker for facts');
  t.equal(said('waiting', 'waiting for room on SIM-1'), 'waiting for room for facts');
  t.equal(said('waiting', 'waiting for room on SIM-1: room is being made: sums@llama#2 leaves'), 'waiting for room for facts: room is being made: sums leaves');
  t.equal(said('waiting', 'waiting for room on GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd: 11 before it; an earlier request needs the room'), 'waiting for room for facts: 11 before it; an earlier request needs the room');
});

t.test('names are short where nothing is lost', async (t) => {
  t.equal(shortDevice('GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd'), 'GPU-5f3c9a1e');
  t.equal(shortDevice('MIG-GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd/1/0'), 'MIG-GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd/1/0');
  const preset = { aliases: [], key: 'facts@llama#1', engine: 'llama', source: '', preload: false };
  const shared = createNames([{ ...preset, name: 'short', contextTokens: 512 }, { ...preset, name: 'long', contextTokens: 4096 }, { ...preset, name: 'again', contextTokens: 512 }]);
  t.equal(shared.model('facts@llama#1'), 'short (512) or long (4096)', 'presets that differ by their contexts');
  t.equal(shared.inText('facts@llama#1 waits'), 'short (512) or long (4096) waits');
  t.equal(createNames([{ ...preset, name: 'short', contextTokens: 512 }, { ...preset, name: 'again', contextTokens: 512 }]).model('facts@llama#1'), 'short', 'and two names for the same');
  const names = createNames([]);
  t.strictSame([names.index('a'), names.index('b'), names.index('a')], [0, 1, 0], 'a model keeps its colour');
});
