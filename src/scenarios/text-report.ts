/** The report of a stress run as people read it. */
import { classes } from '../../protocol/index.js';
import type { Missed } from './expectations.js';
import type { Figures } from './recorder.js';
import type { Scenario } from './scenario.js';

const labelWidth = 26;

/** Lines without colours; a figure that does not exist has no line. */
export function textReport(scenario: Scenario, figures: Figures, missed: readonly Missed[]): string[] {
  const of = (name: string): number => figures[name] ?? 0;
  const line = (label: string, value: string): string => `  ${label.padEnd(labelWidth)}${value}`;
  const reasons = (prefix: string): string => Object.entries(figures).filter(([name]) => name.startsWith(`${prefix}.`)).map(([name, count]) => `${count} ${name.slice(prefix.length + 1)}`).join(', ');
  const spread = (name: string): string | null => (figures[`${name}.p50`] === undefined ? null : `p50 ${seconds(of(`${name}.p50`))}, p95 ${seconds(of(`${name}.p95`))}, p99 ${seconds(of(`${name}.p99`))}, longest ${seconds(of(`${name}.max`))}`);
  const spreads = (label: string, name: string): string[] => {
    const said = spread(name);
    return said === null ? [] : [line(label, said)];
  };
  const failures = reasons('failed');
  const denials = reasons('denied');
  const struck = reasons('struck');
  return [
    `${scenario.name}: ${scenario.about}`,
    line('calls', `${of('requests')}; ${of('answered')} answered, ${of('cancelled')} cancelled, ${of('failed')} failed${failures === '' ? '' : ` (${failures})`}`),
    ...classes.flatMap((name) => spreads(`first token, ${name}`, `waitMs.${name}`)),
    ...spreads('hand-over: in the queue', 'handOverMs.queued'), ...spreads('hand-over: evicting', 'handOverMs.evict'), ...spreads('hand-over: loading', 'handOverMs.load'),
    line('loads', `${of('loads')}, of which ${of('reloads')} again (${seconds(of('reloadMs'))}); ${of('evictions')} evictions, ${of('spawns')} workers started`),
    ...(of('thrashes') === 0 ? [] : [line('thrashed', of('thrashes') === 1 ? 'once' : `${of('thrashes')} times`)]),
    ...(of('denials') === 0 ? [] : [line('denied', `${of('denials')} (${denials})`)]),
    ...(struck === '' ? [] : [line('struck', struck)]),
    ...(of('struck.squat') === 0 ? [] : [line('strangers', `given way to ${of('yields')} times; ${of('strangerRefusedBytes')} bytes refused to them`)]),
    ...(['quarantines', 'overshoots', 'residues'] as const).filter((name) => of(name) > 0).map((name) => line(name, String(of(name)))),
    line('charged, on average', `${(of('utilisation') * 100).toFixed(0)} %`),
    line('over-committed', `${of('overcommittedBytes')} bytes${of('overshootBytes') === 0 ? '' : ` (${of('overshootBytes')} taken beyond what was granted)`}; ${of('oomRefusals')} refused by a card`),
    ...(missed.length === 0 ? [line('expectations', Object.keys(scenario.expect).length === 0 ? 'none in the file' : `all ${Object.keys(scenario.expect).length} hold`)]
      : missed.map(({ figure, value, wanted }) => line('MISSED', `${figure} is ${value === null ? 'missing' : String(value)}; wanted ${wanted}`))),
  ];
}

const seconds = (ms: number): string => (ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`);
