/** What a client can have the log say, however often it asks. */
import t from 'tap';
import { FrugalLog } from '../../../broker/shell/frugal-log.js';
import type { Log } from '../../../broker/shell/index.js';
import { createOrchestrator } from '../../../src/orchestrator/index.js';
import { folder, refusal, until } from '../../integration/support.js';

interface Line {
  readonly level: keyof Log;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

function recorder(): { readonly lines: Line[]; readonly log: Log } {
  const lines: Line[] = [];
  const write = (level: keyof Log) => (fields: Line['fields'], message: string): void => { lines.push({ level, fields, message }); };
  return { lines, log: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') } };
}

t.test('of a kind so many lines are written, and the rest is told once', (t) => {
  const { lines, log } = recorder();
  const frugal = new FrugalLog(log, 3);
  for (let asked = 0; asked < 10_000; asked++) {
    frugal.info({ event: { model: `m${String(asked)}` } }, 'denied');
    frugal.warn({ code: 'never_fits' }, `m${String(asked)} never fits`);
    frugal.debug({}, 'whoever turns this on wants it');
  }
  frugal.error({}, 'another kind');
  const written = (level: keyof Log): readonly string[] => lines.filter((line) => line.level === level).map(({ message }) => message);
  t.strictSame(written('info'), ['denied', 'denied', 'denied']);
  t.strictSame(written('warn'), ['m0 never fits', 'm1 never fits', 'm2 never fits']);
  t.strictSame(written('error'), ['another kind']);
  t.equal(written('debug').length, 10_000);
  lines.length = 0;
  frugal.flush();
  const message = '9997 more lines of this kind left out: over 3 in a minute';
  t.strictSame(lines, [{ level: 'warn', fields: { linesLeftOut: 9_997, what: 'denied' }, message }, { level: 'warn', fields: { linesLeftOut: 9_997, what: 'never_fits' }, message }]);
  frugal.flush();
  t.equal(lines.length, 2, 'once');
  frugal.info({}, 'denied');
  t.equal(lines.length, 3, 'and a new minute begins');
  t.end();
});

t.test('kinds beyond those that are counted apart share one count', (t) => {
  const { lines, log } = recorder();
  const frugal = new FrugalLog(log, 2);
  for (let kind = 0; kind < 10_000; kind++) frugal.info({}, `line ${String(kind)} ${'x'.repeat(10_000)}`);
  t.equal(lines.length, 512 + 2);
  frugal.info({}, `line 0 ${'x'.repeat(10_000)}`);
  t.equal(lines.length, 512 + 3, 'one that is known keeps its own');
  lines.length = 0;
  frugal.flush();
  t.match(lines, [{ fields: { linesLeftOut: 10_000 - 514, what: 'of many kinds' } }]);
  t.end();
});

t.test('a minute that is over is told without another line', async (t) => {
  const { lines, log } = recorder();
  const frugal = new FrugalLog(log, 1, 20);
  for (let line = 0; line < 5; line++) frugal.warn({}, 'again');
  await until('the rest is told', () => lines.length > 1);
  t.strictSame(lines.map(({ message }) => message), ['again', '4 more lines of this kind left out: over 1 in a minute']);
});

t.test('a client that asks impossible things has the log of its broker say so a few times', async (t) => {
  const { lines, log } = recorder();
  const orchestrator = await createOrchestrator({ stateFolder: folder(t), devices: ['sim:64MiB'], broker: 'own', log, limits: { logLinesPerKindMax: 5 } });
  for (let asked = 0; asked < 50; asked++) {
    t.match(await refusal(orchestrator.lease({ model: `vast-${String(asked)}`, bytes: 10 ** 12, onEvict: () => 'busy' })), { code: 'never_fits' });
  }
  await orchestrator.close();
  t.equal(lines.filter(({ message }) => message === 'denied').length, 5);
  t.match(lines.filter(({ fields }) => 'linesLeftOut' in fields && fields['what'] === 'denied'), [{ fields: { linesLeftOut: 45 } }], 'told at the latest when it ends');
});
