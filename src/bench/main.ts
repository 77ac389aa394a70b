/** `npm run bench -- NAME --json`: runs one benchmark, prints its figures, and fails when a limit is missed. */
import { parseArgs } from 'node:util';

interface Bench {
  readonly run: () => Promise<Readonly<Record<string, unknown>>>;
  /** The highest figure allowed under each name. */
  readonly limits: Readonly<Record<string, number>>;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean', default: false }, grants: { type: 'string', default: '1000000' } },
});

/** Loaded one at a time: a benchmark must not measure another's imports. */
const benches: Readonly<Record<string, () => Promise<Bench>>> = {
  lease: async () => {
    const { benchLease, leaseLimits } = await import('./lease.js');
    return { run: async () => ({ ...(await benchLease(Number(values.grants))) }), limits: leaseLimits };
  },
  core: async () => {
    const { benchCore, coreLimits } = await import('./core.js');
    return { run: async () => ({ ...benchCore() }), limits: coreLimits };
  },
  startup: async () => {
    const { benchStartup, startupLimits } = await import('./startup.js');
    return { run: async () => ({ ...(await benchStartup()) }), limits: startupLimits };
  },
};

async function main(): Promise<void> {
  const name = positionals[0] ?? '';
  const bench = benches[name];
  if (bench === undefined) {
    process.stderr.write(`There is no benchmark ${JSON.stringify(name)}; there are: ${Object.keys(benches).join(', ')}.\n`);
    process.exitCode = 2;
    return;
  }
  const { run, limits } = await bench();
  const figures = await run();
  const missed = Object.entries(limits).filter(([key, limit]) => !(Number(figures[key]) <= limit)).map(([key]) => key);
  process.stdout.write(values.json ? `${JSON.stringify({ bench: name, ...figures, limits, missed })}\n` : readable(figures, limits, missed));
  if (missed.length > 0) process.exitCode = 1;
}

function readable(figures: Readonly<Record<string, unknown>>, limits: Readonly<Record<string, number>>, missed: readonly string[]): string {
  const lines = Object.entries(figures).map(([key, value]) => {
    const limit = limits[key];
    const verdict = limit === undefined ? '' : `   at most ${String(limit)}${missed.includes(key) ? '   MISSED' : ''}`;
    return `${key.padEnd(24)} ${String(value)}${verdict}`;
  });
  return `${lines.join('\n')}\n`;
}

await main();
