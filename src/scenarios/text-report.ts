/** The report of a stress run as people read it. */
import { classes, durationText } from '../../protocol/index.js';
import { boundText, valueOf, type Missed } from './expectations.js';
import type { Figures } from './recorder.js';
import type { Scenario } from './scenario.js';

/** Columns before what a line says. */
export const labelColumns = 28;

/** How it was played: all times of the report are the scenario's own, however fast that was. */
export interface PlayedHow {
  readonly on: 'clock' | 'processes' | 'engines';
  readonly speed: number;
}

/** Lines without colours; a figure that does not exist has no line. */
export function textReport(scenario: Scenario, figures: Figures, missed: readonly Missed[], how: PlayedHow): string[] {
  const of = (name: string): number => figures[name] ?? 0;
  const line = (label: string, value: string): string => `  ${label.padEnd(labelColumns - 2)}${value}`;
  const reasons = (prefix: string): string => Object.entries(figures).filter(([name]) => name.startsWith(`${prefix}.`)).map(([name, count]) => `${count} ${name.slice(prefix.length + 1)}`).join(', ');
  const spread = (name: string): string | null => (figures[`${name}.p50`] === undefined ? null : `p50 ${durationText(of(`${name}.p50`))}, p95 ${durationText(of(`${name}.p95`))}, p99 ${durationText(of(`${name}.p99`))}, longest ${durationText(of(`${name}.max`))}`);
  const spreads = (label: string, name: string): string[] => {
    const said = spread(name);
    return said === null ? [] : [line(label, said)];
  };
  const failures = reasons('failed');
  const denials = reasons('denied');
  const struck = reasons('struck');
  return [
    `${scenario.name}: ${scenario.about}`,
    line('played', playedText(scenario, how)),
    line('calls', `${of('requests')}: ${of('answered')} answered, ${of('cancelled')} cancelled, ${of('failed')} failed${failures === '' ? '' : ` (${failures})`}`),
    ...classes.flatMap((name) => spreads(`first token, ${name}`, `waitMs.${name}`)),
    ...spreads('hand-over: in the queue', 'handOverMs.queued'), ...spreads('hand-over: evicting', 'handOverMs.evict'), ...spreads('hand-over: loading', 'handOverMs.load'),
    line('loads', `${of('loads')}, of which ${of('reloads')} again (${durationText(of('reloadMs'))}); ${of('evictions')} evictions, ${of('spawns')} workers started`),
    ...(of('thrashes') === 0 ? [] : [line('thrashed', of('thrashes') === 1 ? 'once' : `${of('thrashes')} times`)]),
    line('requests for room', `${of('grants')} granted, ${of('denials')} denied by the broker${of('denials') === 0 ? '' : ` (${denials}); the callers go on asking while they may`}`),
    ...(struck === '' ? [] : [line('struck', struck)]),
    ...(of('struck.squat') === 0 ? [] : [line('strangers', `given way to ${of('yields')} times; ${of('strangerRefusedBytes')} bytes refused to them`)]),
    ...(['quarantines', 'overshoots', 'residues'] as const).filter((name) => of(name) > 0).map((name) => line(name, String(of(name)))),
    line('charged, on average', `${(of('utilisation') * 100).toFixed(0)} %`),
    line('over-committed', `${of('overcommittedBytes')} bytes${of('overshootBytes') === 0 ? '' : ` (${of('overshootBytes')} taken beyond what was granted)`}; ${of('oomRefusals')} refused by a card`),
    ...expectations(scenario.expect, figures, missed).map(([label, value]) => line(label, value)),
  ];
}

/** Each by the name that the file gives it. */
function expectations(expect: Scenario['expect'], figures: Figures, missed: readonly Missed[]): readonly (readonly [label: string, value: string])[] {
  const names = Object.keys(expect);
  const held = names.filter((name) => !missed.some(({ figure }) => figure === name));
  return [
    ['expectations', names.length === 0 ? 'none in the file' : held.length === names.length ? `all ${names.length} hold` : `${held.length} of ${names.length} hold`],
    ...held.map((name) => ['  holds', `${name} is ${String(valueOf(figures, name))}; wanted ${boundText(expect[name] ?? {})}`] as const),
    ...missed.map(({ figure, value, wanted }) => ['  MISSED', `${figure} is ${value === null ? 'missing' : String(value)}; wanted ${wanted}`] as const),
  ];
}

function playedText({ durationMs, seed }: Scenario, { on, speed }: PlayedHow): string {
  const long = `callers come for ${durationText(durationMs)}, seed ${seed}`;
  if (on === 'clock') return `${long}; on a virtual clock`;
  const what = on === 'processes' ? 'real processes with simulated workers' : 'real engines';
  return speed === 1 ? `${long}; on ${what}` : `${long}; on ${what}, ${speed} times as fast (--speed): the times below are the scenario's own, not the clock's`;
}
