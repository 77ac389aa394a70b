/** `npm run bench -- NAME --json`: runs one benchmark, prints its figures, and fails when a limit is missed. */
import { parseArgs } from 'node:util';

interface Bench {
  readonly run: () => Promise<Readonly<Record<string, unknown>>>;
  /** The highest figure allowed under each name. */
  readonly limits: Readonly<Record<string, number>>;
}

interface Entry {
  readonly about: string;
  /** Loaded one at a time: a benchmark must not measure another's imports. */
  readonly load: (grants: number) => Promise<Bench>;
}

const benches: Readonly<Record<string, Entry>> = {
  lease: {
    about: 'what a release and a grant cost from another process, against bare messages',
    load: async (grants) => {
      const { benchLease, leaseLimits } = await import('./lease.js');
      return { run: async () => ({ ...(await benchLease(grants)) }), limits: leaseLimits };
    },
  },
  core: {
    about: 'a step, a choice of victims and a grant among 10,000 leases, without processes',
    load: async () => {
      const { benchCore, coreLimits } = await import('./core.js');
      return { run: async () => ({ ...benchCore() }), limits: coreLimits };
    },
  },
  startup: {
    about: 'from the start of a daemon to its first accepted connection, and its memory',
    load: async () => {
      const { benchStartup, startupLimits } = await import('./startup.js');
      return { run: async () => ({ ...(await benchStartup()) }), limits: startupLimits };
    },
  },
  policy: {
    about: 'the reload time that the choice of victims costs, against what no schedule can beat',
    load: async () => {
      const { benchPolicy, policyLimits } = await import('./policy.js');
      return { run: async () => ({ ...(await benchPolicy()) }), limits: policyLimits };
    },
  },
  stage: {
    about: 'bringing a model here from a hub, against a plain copy that hashes the same bytes',
    load: async () => {
      const { benchStage, stageLimits } = await import('./stage.js');
      return { run: async () => ({ ...(await benchStage()) }), limits: stageLimits };
    },
  },
};

const grantsMax = 100_000_000;

const usage = `Usage: npm run bench -- NAME [--json] [--grants COUNT]

${Object.entries(benches).map(([name, { about }]) => `  ${name.padEnd(9)} ${about}`).join('\n')}

  --json          one JSON object, with limits and what missed them
  --grants COUNT  how many grants \`lease\` makes (default: 1000000)

Exit status: 0 done; 1 a limit was missed; 2 wrong usage.
`;

/** What is wrong with the command line; told with the usage, never with a stack. */
class UsageError extends Error {}

interface Asked {
  readonly bench: { readonly name: string; readonly load: Entry['load'] } | null;
  readonly json: boolean;
  readonly grants: number;
}

/** `bench` is null when help was asked for. */
function readArguments(args: readonly string[]): Asked {
  const { values, positionals } = parsed(args);
  const grants = /^\d{1,9}$/.test(values.grants) ? Number(values.grants) : 0;
  if (grants < 1 || grants > grantsMax) throw new UsageError(`--grants must be a whole number from 1 to ${grantsMax}, not ${JSON.stringify(values.grants)}`);
  if (values.help) return { bench: null, json: values.json, grants };
  const [name, ...more] = positionals;
  if (name === undefined) throw new UsageError('the name of a benchmark is missing');
  if (more.length > 0) throw new UsageError(`one benchmark at a time, not also ${more.join(', ')}`);
  const entry = Object.hasOwn(benches, name) ? benches[name] : undefined;
  if (entry === undefined) throw new UsageError(`there is no benchmark ${JSON.stringify(name)}`);
  return { bench: { name, load: entry.load }, json: values.json, grants };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args], allowPositionals: true,
      options: { json: { type: 'boolean', default: false }, help: { type: 'boolean', short: 'h', default: false }, grants: { type: 'string', default: '1000000' } },
    });
  } catch (error) {
    // Its first sentence says which option; the rest is about how else it could be written.
    throw new UsageError(/^[^\n]*?(?=\.?(?:\n| To |$))/.exec((error as Error).message)?.[0] ?? 'the command line cannot be read', { cause: error });
  }
}

async function main(args: readonly string[]): Promise<number> {
  const { bench, json, grants } = readArguments(args);
  if (bench === null) {
    process.stdout.write(usage);
    return 0;
  }
  const { run, limits } = await bench.load(grants);
  const figures = await run();
  const missed = Object.entries(limits).filter(([key, limit]) => !(Number(figures[key]) <= limit)).map(([key]) => key);
  process.stdout.write(json ? `${JSON.stringify({ bench: bench.name, ...figures, limits, missed })}\n` : readable(figures, limits, missed));
  return missed.length > 0 ? 1 : 0;
}

function readable(figures: Readonly<Record<string, unknown>>, limits: Readonly<Record<string, number>>, missed: readonly string[]): string {
  const lines = Object.entries(figures).map(([key, value]) => {
    const limit = limits[key];
    const verdict = limit === undefined ? '' : `   at most ${String(limit)}${missed.includes(key) ? '   MISSED' : ''}`;
    return `${key.padEnd(24)} ${typeof value === 'number' ? String(value) : JSON.stringify(value)}${verdict}`;
  });
  return `${lines.join('\n')}\n`;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`error: ${error.message}\n\n${usage}`);
  process.exitCode = 2;
}
