// leasehold.yaml, the environment and the command line become one checked set of options, or one error that names the place.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execFileSync } from 'node:child_process';
import t from 'tap';
import { parse } from 'yaml';
import { LeaseholdError, classPolicies, classes, defaultLimits, limitMinimum, type LimitName, type ModelSpec } from '../../protocol/index.js';
import { configSchemaPath, configVariables, limitVariable, loadConfig, type LoadConfigRequest } from '../../src/config/index.js';
import { parseDurationMs } from '../../src/config/durations.js';
import { configSchema, type JsonSchema } from '../../src/config/schema-file.js';
import { isPlainlyValid } from '../../src/config/plain.js';
import { readModelScript } from '../../workers/simulated/script.js';
import { didYouMean, editDistance, nearest, suggest } from '../../protocol/suggest.js';
import { assertValid } from '../../src/config/validate.js';

const work = mkdtempSync(join(tmpdir(), 'leasehold-config-'));
t.teardown(() => { rmSync(work, { recursive: true }); });

let files = 0;
function written(text: string | Uint8Array): string {
  const folder = join(work, `case-${files++}`);
  mkdirSync(folder);
  const path = join(folder, 'leasehold.yaml');
  writeFileSync(path, text);
  return path;
}

/** Loads with nothing around it but what the test gives. */
const loadWhole = (request: LoadConfigRequest) => loadConfig({ env: {}, cwd: work, home: work, ...request });
const load = async (request: LoadConfigRequest) => {
  const { path, options, log } = await loadWhole(request);
  return { path, options, log };
};
const loadText = (text: string | Uint8Array) => {
  const path = written(text);
  return load({ flags: { config: path }, cwd: dirname(path) });
};

async function refusal(loading: Promise<unknown>): Promise<LeaseholdError> {
  const thrown = await loading.then(() => null, (error: unknown) => error);
  if (thrown instanceof LeaseholdError) return thrown;
  throw new Error('it was not refused with an error of ours', { cause: thrown });
}

t.test('a file', async (t) => {
  t.test('says everything in the units and names of the library', async (t) => {
    const { options, log, path } = await loadText(`
devices: [sim:24MiB, GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee]
reserve: { GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee: 1GiB }
yield: { GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee: 2GiB, SIM-0-1: auto, SIM-0-2: off }
state: run
broker: own
allowLedgerOnly: true
hostMemory: { lease: 'sim:2GiB,blind', reserve: 256MiB, allowUnknown: true }
models:
  tales: { source: tiny-tales, ttl: 10m, pin: true, preload: true, aliases: [stories], class: interactive }
  file:
    source: weights/small.gguf
    engine: mine
    context: 4096
    parallel: 2
    ttl: never
    exclusive: true
    device: GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee
    declaredBytes: 2GB
    embedding: true
    offload: { minGpuLayers: 16 }
    options: { flash: true, layers: 12 }
workers:
  mine: { command: ./worker.sh, args: [--fast], env: { LEVEL: 3 }, modelsPerWorker: 4 }
  llama: { modelsPerWorker: 3 }
limits: { heartbeatIntervalMs: 2s, frameBytesMax: 4MiB, workersMax: 3, classes: { background: { minimumResidencyMs: 1s, rank: 0 } } }
log: { level: debug, file: leasehold.log }
`);
    const folder = dirname(path ?? '');
    t.strictSame(options, {
      devices: ['sim:24MiB', 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'],
      reserveBytes: { 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee': 1024 ** 3 },
      yieldFreeBytes: { 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee': 2 * 1024 ** 3, 'SIM-0-1': 'auto', 'SIM-0-2': 'off' },
      stateFolder: join(folder, 'run'),
      broker: 'own',
      allowLedgerOnly: true,
      hostMemory: { lease: 'sim:2GiB,blind', reserveBytes: 256 * 1024 ** 2, allowUnknown: true },
      models: {
        tales: { source: 'tiny-tales', ttlMs: 600_000, pinned: true, preload: true, aliases: ['stories'], class: 'interactive' },
        file: {
          source: join(folder, 'weights/small.gguf'), engine: 'mine', contextTokens: 4096, parallel: 2, ttlMs: null, exclusive: true,
          device: 'GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee', declaredBytes: 2_000_000_000, embedding: true, offload: { minGpuLayers: 16 }, options: { flash: 'true', layers: '12' },
        },
      },
      engines: [
        { name: 'mine', command: join(folder, 'worker.sh'), args: ['--fast'], env: { LEVEL: '3' }, modelsPerWorker: 4 },
        { name: 'llama', modelsPerWorker: 3 },
      ],
      limits: { heartbeatIntervalMs: 2_000, frameBytesMax: 4 * 1024 ** 2, workersMax: 3 },
      classPolicies: { background: { minimumResidencyMs: 1_000, rank: 0 } },
    });
    t.strictSame(log, { level: 'debug', file: join(folder, 'leasehold.log') });
  });

  t.test('may be empty, hold comments alone, or have sections without entries', async (t) => {
    for (const text of ['', '# nothing\n', '---\n', 'models:\nlimits:\nlog:\nworkers:\nhostMemory:\n', '\uFEFFdevices: cpu']) {
      const { options, log } = await loadText(text);
      t.strictSame([options, log], [text.includes('cpu') ? { devices: ['cpu'] } : {}, { level: 'warn', file: null }], JSON.stringify(text));
    }
  });

  t.test('may repeat itself by anchors, within bounds', async (t) => {
    const { options } = await loadText('models:\n  a: &a { source: tiny-tales, context: 512 }\n  b: *a\n');
    t.strictSame(options.models?.['b'], { source: 'tiny-tales', contextTokens: 512 });
    const contexts = await loadText(`models:\n${['8k', '32K', '"4096"', '16384k', '1'].map((context, index) => `  m${index}: { source: tiny-tales, context: ${context} }\n`).join('')}`);
    t.strictSame(Object.values(contexts.options.models ?? {}).map(({ contextTokens }) => contextTokens), [8_192, 32_768, 4_096, 16_777_216, 1], 'as the command line takes them');
  });

  t.test('finds the home folder behind a tilde', async (t) => {
    t.strictSame((await loadText('state: ~/lease')).options, { stateFolder: join(work, 'lease') });
  });
});

/** Text, the place that the error names, what it says. */
const refused: readonly (readonly [text: string, where: string, reason: RegExp])[] = [
  ['modls: {}', 'line 1, column 1 (modls)', /unknown key "modls"; did you mean models\?/],
  ['devices: auto\nfrobnicate: 1', 'line 2, column 1 (frobnicate)', /unknown key "frobnicate"; known here: devices, reserve, yield, state/],
  ['devices: auto\ndevices: cpu', 'line 2, column 1', /^the key "devices" is there twice, first in line 1; keep one$/],
  ['models:\n  a: { source: x }\n  a: { source: y }', 'line 3, column 3', /the key "a" is there twice, first in line 2; keep one/],
  ['models: { a: { source: x, source: y } }', 'line 1, column 27', /^the key "source" is there twice, first in line 1; keep one$/],
  ['devices: [auto', 'line 1, column 15', /flow|\]/i],
  ['devices: auto\n  broker: own', 'line 1, column 10', /nested|indent|map/i],
  ['\tdevices: auto', 'line 1', /tab/i],
  ['a: 1\n---\nb: 2', 'line 2, column 1', /several documents/],
  ['devices: !!python/object:os.system cpu', 'line 1', /tag/i],
  ['devices: !secret cpu', 'line 1', /tag/i],
  ['models: !!binary aGk=', 'line 1', /tag/i],
  ['models: !!set {a, b}', 'line 1', /tag/i],
  ['? [a, b]\n: 1', 'line 1', /string|key/i],
  ['just words', 'line 1, column 1', /must be/],
  ['- devices', 'line 1, column 1', /must be/],
  ['devices: 0', 'line 1, column 10 (devices)', /never an index/],
  ['devices: [auto, "1"]', 'line 1, column 17 (devices[1])', /never an index.*not "1"/],
  ['devices: []', 'line 1, column 10 (devices)', /at least one/],
  ['devices: [cpu, cpu]', 'line 1, column 10 (devices)', /^"cpu" is there twice$/],
  ['devices: ["sim:24GiB", cpu, "sim:24GiB"]', 'line 1, column 10 (devices)', /^"sim:24GiB" is there twice; two simulated cards alike need names: sim:24GiB,name=left and sim:24GiB,name=right$/],
  ['devices: sim:24.5MiB', 'line 1, column 10 (devices)', /auto, cpu, sim:SIZE/],
  ['reserve: -1', 'line 1, column 10 (reserve)', /must be a size.*not -1/],
  ['reserve: 1.5', 'line 1, column 10 (reserve)', /must be a size.*not 1.5/],
  ['reserve: .nan', 'line 1, column 10 (reserve)', /must be a size/],
  ['reserve: 1.5GiB', 'line 1, column 10 (reserve)', /must be a size/],
  ['reserve: 24 MiB', 'line 1, column 10 (reserve)', /must be a size/],
  ['reserve: 24mib', 'line 1, column 10 (reserve)', /must be a size/],
  ['reserve: 9007199254740993', 'line 1, column 10 (reserve)', /must be a size/],
  ['reserve: 9999999TiB', 'line 1, column 10 (reserve)', /at most 9007199254740991 bytes/],
  ['reserve: { GPU-0: 1GB, "0": 1GB }', 'line 1, column 24 (reserve.0)', /UUID/],
  ['yield: true', 'line 1, column 8 (yield)', /must be off, auto, a size like 2GiB/],
  ['yield: 0', 'line 1, column 8 (yield)', /must be off, auto, a size/],
  ['yield: { GPU-0: on }', 'line 1, column 17 (yield.GPU-0)', /must be off, auto or a size/],
  ['reserve: { GPU-0: lots }', 'line 1, column 19 (reserve.GPU-0)', /must be a size/],
  ['broker: attached', 'line 1, column 9 (broker)', /one of auto, own, attach, not "attached"; did you mean attach\?/],
  ['hostMemory: on', 'line 1, column 13 (hostMemory)', /a map with lease/],
  ['hostMemory: { lease: 7GiB }', 'line 1, column 22 (hostMemory.lease)', /auto, system, off or sim:SIZE/],
  ['hostMemory: { reserve: 10% }', 'line 1, column 24 (hostMemory.reserve)', /must be a size/],
  ['hostMemory: { reserved: 1 }', 'line 1, column 15 (hostMemory.reserved)', /did you mean reserve/],
  ['allowLedgerOnly: "yes"', 'line 1, column 18 (allowLedgerOnly)', /true or false, not "yes"/],
  ['state: 7', 'line 1, column 8 (state)', /path of a folder/],
  ['models: [a]', 'line 1, column 9 (models)', /a map of names/],
  ['models:\n  a: tiny-tales', 'line 2, column 6 (models.a)', /map that describes a model/],
  ['models:\n  a: {}', 'line 2, column 3 (models.a)', /source is missing/],
  ['models:\n  "a b": { source: x }', 'line 2, column 3 (models.a b)', /must be a model name/],
  ['models:\n  __proto__: { source: x }', 'line 2, column 3 (models.__proto__)', /must be a model name/],
  ['__proto__: { a: 1 }', 'line 1, column 1 (__proto__)', /unknown key/],
  ['models:\n  a: { source: x, contxt: 5 }', 'line 2, column 19 (models.a.contxt)', /did you mean context\?/],
  ['models:\n  a: { source: x, context: 8kk }', 'line 2, column 28 (models.a.context)', /^must be a whole number of tokens from 1 to 16777216, or one of times 1024 like 8k, not "8kk"$/],
  ['models:\n  a: { source: x, context: 16385k }', 'line 2, column 28 (models.a.context)', /^must be from 1 to 16777216 tokens$/],
  ['models:\n  a: { source: x, context: 0 }', 'line 2, column 28 (models.a.context)', /whole number of tokens from 1/],
  ['models:\n  a: { source: x, parallel: 1.5 }', 'line 2, column 29 (models.a.parallel)', /whole number from 1 to 1024, not 1.5/],
  ['models:\n  a: { source: x, ttl: soon }', 'line 2, column 24 (models.a.ttl)', /duration like 10m, or never, not "soon"/],
  ['models:\n  a: { source: x, ttl: 31d }', 'line 2, column 24 (models.a.ttl)', /at most 30d/],
  ['models:\n  a: { source: x, class: urgent }', 'line 2, column 26 (models.a.class)', /interactive, normal, background/],
  ['models:\n  a: { source: x, aliases: b }', 'line 2, column 28 (models.a.aliases)', /list of names/],
  ['models:\n  a: { source: x, declaredBytes: 0 }', 'line 2, column 34 (models.a.declaredBytes)', /size above 0/],
  ['models:\n  a: { source: x, declaredBytes: 0KiB }', 'line 2, column 34 (models.a.declaredBytes)', /size above 0/],
  ['models:\n  a: { source: x, device: "0" }', 'line 2, column 27 (models.a.device)', /UUID/],
  ['models:\n  a: { source: x, options: { deep: { er: 1 } } }', 'line 2, column 36 (models.a.options.deep)', /string, number or boolean/],
  ['workers:\n  mine: { args: [a] }', 'line 2, column 9 (workers.mine)', /command is missing/],
  ['workers:\n  mine: { command: x, modelsPerWorker: 0 }', 'line 2, column 40 (workers.mine.modelsPerWorker)', /from 1 to 1024/],
  ['workers:\n  mine: { command: x, env: { "A=B": 1 } }', 'line 2, column 30 (workers.mine.env.A=B)', /name of a variable/],
  ['limits: { heartbeatIntervalMS: 5 }', 'line 1, column 11 (limits.heartbeatIntervalMS)', /did you mean heartbeatIntervalMs\?/],
  ['limits: { workersMax: 0 }', 'line 1, column 23 (limits.workersMax)', /from 1 to/],
  ['limits: { grantConfirmMs: 99 }', 'line 1, column 27 (limits.grantConfirmMs)', /at least 100 ms/],
  ['limits: { grantConfirmMs: 50ms }', 'line 1, column 27 (limits.grantConfirmMs)', /grantConfirmMs >= 100ms must hold; grantConfirmMs is 50ms$/],
  ['limits: { spawnTimeoutMs: -5s }', 'line 1, column 27 (limits.spawnTimeoutMs)', /duration above 0/],
  ['limits: { spawnTimeoutMs: 31d }', 'line 1, column 27 (limits.spawnTimeoutMs)', /at most 2147483647 ms/],
  ['limits: { spawnTimeoutMs: 25d }', 'line 1, column 27 (limits.spawnTimeoutMs)', /at most 2147483647 ms/],
  ['limits: { heartbeatMissesMax: 2 }', 'line 1, column 31 (limits.heartbeatMissesMax)', /heartbeatMissesMax >= 3 must hold; heartbeatMissesMax is 2/],
  ['limits:\n  frameBytesMax: 32MiB', 'line 2, column 18 (limits.frameBytesMax)', /frameBytesMax <= outgoingBytesMax must hold/],
  ['limits: { classes: { urgent: {} } }', 'line 1, column 22 (limits.classes.urgent)', /interactive, normal, background/],
  ['limits: { classes: { normal: { ageing: 1s } } }', 'line 1, column 32 (limits.classes.normal.ageing)', /did you mean ageingMs\?/],
  ['log: { level: verbose }', 'line 1, column 15 (log.level)', /silent, error, warn, info, debug/],
];

t.test('a file is refused with the line, the key and what is allowed there:', async (t) => {
  for (const [text, where, reason] of refused) {
    t.test(JSON.stringify(text), async (t) => {
      const error = await refusal(loadText(text));
      t.equal(error.code, 'config_invalid');
      t.equal(error.details['path'], 'leasehold.yaml');
      t.ok(error.details['where']?.startsWith(where), `${error.details['where']} begins with ${where}`);
      t.match(error.details['reason'], reason);
    });
  }

  t.test('all its faults at once, in the order of the text', async (t) => {
    const error = await refusal(loadText('log: { level: loud }\nmodls: {}\nreserve: -1\n'));
    t.match(error.message, /^leasehold\.yaml: line 1, column 15 \(log\.level\): must be one of/);
    t.match(error.details['more'], /^line 2, column 1 \(modls\): unknown key.*\nline 3, column 10 \(reserve\): must be a size/);
  });

  t.test('an alias bomb, without building it', async (t) => {
    const levels = Array.from({ length: 12 }, (_, level) => `l${level + 1}: &l${level + 1} [${Array(9).fill(`*l${level}`).join(', ')}]`);
    const error = await refusal(loadText(`l0: &l0 [x, x]\n${levels.join('\n')}\n`));
    t.equal(error.code, 'config_invalid');
    t.match(error.details['reason'], /at most 200000 keys and values are read/);
  });

  t.test('more aliases than are followed, one that leads nowhere, one that leads to itself, each at its place', async (t) => {
    const anchors = (count: number): string => Array.from({ length: count }, (_, index) => `m${index}: &a${index} {source: x}`).join(', ');
    const uses = (count: number): string => Array.from({ length: count }, (_, index) => `n${index}: *a${index}`).join(', ');
    const told = async (text: string): Promise<string | undefined> => (await refusal(loadText(text))).message.replace(/^.*: (?=line)/, '');
    t.equal(Object.keys((await loadText(`models: {${anchors(100)}, ${uses(100)}}\n`)).options.models ?? {}).length, 200, 'a hundred are followed');
    t.equal(await told(`models: {${anchors(101)}}\nmore: {${uses(101)}}\n`), `line 2, column ${`more: {${uses(100)}, n100: `.length + 1}: at most 100 aliases are followed.`);
    t.equal(await told('devices: *cards\n'), 'line 1, column 10: there is no &cards before it.');
    t.equal(await told('models: &a\n  m: *a\n'), 'line 2, column 6: &a would hold itself.');
    t.equal(await told(`devices: [${'x, '.repeat(200_000)}x]\n`), 'line 1, column 600002: at most 200000 keys and values are read.');
  });

  t.test('everything that is wrong at once: each place that is no YAML, each limit that contradicts another', async (t) => {
    const broken = await refusal(loadText('models:\n  a: { source: [x }\n   b: "un\nc: : d\n'));
    t.match([broken.details['where'], broken.details['more']?.split('\n').length], ['line 2, column 19', 2]);
    const limits = await refusal(loadText('limits:\n  heartbeatMissesMax: 2\n  frameBytesMax: 32MiB\nhostMemory: { reserve: 9999TiB }\n'));
    t.match(limits.details['reason'], /heartbeatMissesMax >= 3 must hold/);
    t.match(limits.details['more'], /^line 3, column 18 \(limits\.frameBytesMax\): frameBytesMax <= outgoingBytesMax must hold; frameBytesMax is 32MiB, outgoingBytesMax is 16MiB\nline 4, column 24 \(hostMemory\.reserve\): must be at most \d+ bytes$/);
    const sources = await refusal(load({ flags: { config: written('stat: x\n'), reserve: 'lots' }, env: { LEASEHOLD_LIMIT_X: '3' } }));
    t.match([sources.details['path'], sources.details['more']], ['command line', /^environment: LEASEHOLD_LIMIT_X: there is no such limit\n.*: line 1, column 1 \(stat\): unknown key "stat"; did you mean state\?$/]);
  });

  t.test('what is wrong with thousands of models, in time that grows with their number alone', async (t) => {
    const models = (count: number): string => `models:\n${Array.from({ length: count }, (_, index) => `  m${index}: { sorce: x }`).join('\n')}\n`;
    const cpuMs = async (count: number): Promise<number> => {
      const before = process.cpuUsage();
      const error = await refusal(loadText(models(count)));
      const { user } = process.cpuUsage(before);
      t.match(error.details['more'], new RegExp(`^line 2, column 9 \\(models\\.m0\\.sorce\\): unknown key.*did you mean source\\?\n[^]*\nand ${2 * count - 21} more$`));
      return user / 1_000;
    };
    // Compiles what is compiled once.
    await cpuMs(20);
    const [few, many] = [await cpuMs(500), await cpuMs(10_000)];
    t.ok(many < 20 * few * 5, `twenty times as many took ${(many / few).toFixed(0)} times as long, not four hundred`);
  });

  t.test('a file that cannot be read, is no file, is too large or is not text', async (t) => {
    const fifo = join(work, 'fifo');
    execFileSync('mkfifo', [fifo]);
    for (const [config, reason] of [
      [join(work, 'absent.yaml'), /no such file/], [work, /not a regular file/], [fifo, /not a regular file/],
      [written(`# ${'x'.repeat(1024 * 1024)}`), /at most 1048576/], [written(Buffer.from([0x61, 0x3a, 0xff])), /not UTF-8/],
    ] as const) {
      const error = await refusal(load({ flags: { config } }));
      t.equal(error.code, 'config_unreadable');
      t.match(error.details['reason'], reason);
    }
  });
});

t.test('sources', async (t) => {
  t.test('are looked for in order: --config, LEASEHOLD_CONFIG, the folder, the home folder, none', async (t) => {
    const [flag, variable, here, atHome] = ['flag', 'variable', 'here', 'home'].map((name) => written(`state: /${name}`)) as [string, string, string, string];
    const home = join(work, 'someone');
    mkdirSync(join(home, '.config', 'leasehold'), { recursive: true });
    writeFileSync(join(home, '.config', 'leasehold', 'leasehold.yaml'), readFileSync(atHome));
    const around = { home, cwd: dirname(here) };
    const stateOf = async (request: LoadConfigRequest) => (await load({ ...around, ...request })).options.stateFolder;
    t.equal(await stateOf({ flags: { config: flag }, env: { LEASEHOLD_CONFIG: variable } }), '/flag');
    t.equal(await stateOf({ env: { LEASEHOLD_CONFIG: variable } }), '/variable');
    t.equal(await stateOf({ env: { LEASEHOLD_CONFIG: '' } }), '/here');
    t.equal(await stateOf({ cwd: work }), '/home');
    t.strictSame(await load({ cwd: work }), { path: null, options: {}, log: { level: 'warn', file: null } });
  });

  t.test('R248: the command line beats the environment, which beats the file; limits one by one', async (t) => {
    const config = written('state: /file\nreserve: 1\nbroker: own\nhostMemory: { lease: off, reserve: 1GiB }\nlimits: { workersMax: 1, sessionsMax: 1, sessionsPerProcessMax: 1, leasesMax: 1 }\n');
    const env = { LEASEHOLD_STATE: '/env', LEASEHOLD_RESERVE: '2MiB', LEASEHOLD_LIMIT_WORKERS_MAX: '2', LEASEHOLD_LIMIT_SESSIONS_MAX: '2', LEASEHOLD_BROKER: '  ', LEASEHOLD_HOST_MEMORY: 'system' };
    const { options } = await load({ env, flags: { config, state: '/flag', limit: ['workersMax=3'] } });
    t.strictSame(options, { reserveBytes: 2 * 1024 ** 2, broker: 'own', stateFolder: '/flag', hostMemory: { lease: 'system', reserveBytes: 1024 ** 3 }, limits: { leasesMax: 1, sessionsMax: 2, sessionsPerProcessMax: 1, workersMax: 3 } });
  });

  t.test('give cards as lists, whatever stands between them', async (t) => {
    const devicesOf = async (request: LoadConfigRequest) => (await load(request)).options.devices;
    t.strictSame(await devicesOf({ env: { LEASEHOLD_DEVICES: 'sim:24MiB,floor=1MiB,lag=200ms, sim:8MiB GPU-ab' } }), ['sim:24MiB,floor=1MiB,lag=200ms', 'sim:8MiB', 'GPU-ab']);
    t.strictSame(await devicesOf({ flags: { device: ['sim:24MiB,blind', 'cpu'] } }), ['sim:24MiB,blind', 'cpu']);
  });

  t.test('set everything a variable or an option can set', async (t) => {
    const env = {
      LEASEHOLD_STATE: 'here', LEASEHOLD_DEVICES: 'cpu', LEASEHOLD_RESERVE: '7', LEASEHOLD_YIELD: '8', LEASEHOLD_BROKER: 'attach',
      LEASEHOLD_ALLOW_LEDGER_ONLY: '1', LEASEHOLD_HOST_MEMORY: 'system', LEASEHOLD_HOST_RESERVE: '9',
      LEASEHOLD_LOG_LEVEL: 'error', LEASEHOLD_LOG_FILE: 'a.log',
    };
    t.strictSame(Object.keys(env).sort(), Object.keys(configVariables).sort(), 'every variable is tried');
    const flags = { state: 'here', device: ['cpu'], reserve: '7', yield: '8', broker: 'attach', allowLedgerOnly: true, hostMemory: 'system', hostReserve: '9', logLevel: 'error', logFile: 'a.log' };
    const byEnvironment = await load({ env });
    t.strictSame(byEnvironment, {
      path: null,
      options: { devices: ['cpu'], reserveBytes: 7, yieldFreeBytes: 8, broker: 'attach', stateFolder: join(work, 'here'), allowLedgerOnly: true, hostMemory: { lease: 'system', reserveBytes: 9 } },
      log: { level: 'error', file: join(work, 'a.log') },
    });
    t.strictSame(await load({ flags }), byEnvironment);
    for (const name of Object.keys(defaultLimits) as LimitName[]) {
      const { options } = await load({ env: { [limitVariable(name)]: String(defaultLimits[name] || 1) } });
      t.strictSame(options.limits, { [name]: defaultLimits[name] || 1 });
    }
  });

  const spoken: readonly (readonly [request: LoadConfigRequest, path: string, where: string, reason: RegExp])[] = [
    [{ env: { LEASEHOLD_RESERVE: 'lots' } }, 'environment', 'LEASEHOLD_RESERVE', /must be a size.*not "lots"/],
    [{ env: { LEASEHOLD_DEVICES: '0' } }, 'environment', 'LEASEHOLD_DEVICES', /never an index/],
    [{ env: { LEASEHOLD_ALLOW_LEDGER_ONLY: 'maybe' } }, 'environment', 'LEASEHOLD_ALLOW_LEDGER_ONLY', /true or false/],
    [{ env: { LEASEHOLD_LIMIT_WORKERS_MAX: '-1' } }, 'environment', 'LEASEHOLD_LIMIT_WORKERS_MAX', /from 1 to/],
    [{ env: { LEASEHOLD_LIMIT_HEARTBEAT_MISSES_MAX: '1' } }, 'environment', 'LEASEHOLD_LIMIT_HEARTBEAT_MISSES_MAX', /heartbeatMissesMax >= 3/],
    [{ env: { LEASEHOLD_LIMIT_WORKER_MAX: '1' } }, 'environment', 'LEASEHOLD_LIMIT_WORKER_MAX', /did you mean LEASEHOLD_LIMIT_WORKERS_MAX\?/],
    [{ env: { LEASEHOLD_LIMIT_NONSENSE: '1' } }, 'environment', 'LEASEHOLD_LIMIT_NONSENSE', /no such limit/],
    [{ env: { LEASEHOLD_DEVICE: 'cpu' } }, 'environment', 'LEASEHOLD_DEVICE', /did you mean LEASEHOLD_DEVICES\?/],
    [{ flags: { device: ['nvidia'] } }, 'command line', '--device', /UUID/],
    [{ flags: { broker: 'none' } }, 'command line', '--broker', /auto, own, attach/],
    [{ flags: { limit: ['workersMax'] } }, 'command line', '--limit', /NAME=VALUE/],
    [{ flags: { limit: ['workerMax=5'] } }, 'command line', '--limit workerMax', /did you mean workersMax\?/],
    [{ flags: { limit: ['__proto__=5'] } }, 'command line', '--limit __proto__', /unknown key/],
    [{ flags: { logLevel: 'loud' } }, 'command line', '--log-level', /silent, error/],
  ];
  for (const [request, path, where, reason] of spoken) {
    t.test(`R249: ${JSON.stringify(request)} is refused by name`, async (t) => {
      const error = await refusal(load(request));
      t.match(error, { code: 'config_invalid', details: { path, where, reason } });
    });
  }

  t.test('may hold variables that are not ours', async (t) => {
    t.strictSame((await load({ env: { LEASEHOLD_KEY: 'x', LEASEHOLD_TOKEN: 'y', LEASEHOLD_UNRELATED_TOOL: 'z', STATE: 'w' } })).options, {});
  });
});

t.test('the schema file', async (t) => {
  const schema = configSchema();
  const definition = (part: JsonSchema | undefined): JsonSchema => {
    const reference = part?.allOf?.[0]?.$ref ?? part?.$ref;
    return reference === undefined ? part ?? {} : schema.definitions?.[reference.replace('#/definitions/', '')] ?? {};
  };

  t.test('has every limit of protocol/limits.ts, its default and its kind, and no other', async (t) => {
    const { classes: classSchema, ...limits } = schema.properties?.['limits']?.properties ?? {};
    t.strictSame(Object.keys(limits), Object.keys(defaultLimits));
    for (const [name, limit] of Object.entries(limits)) {
      t.equal(limit.default, defaultLimits[name as LimitName], `default of ${name}`);
      t.match(definition(limit).title, name.includes('Bytes') ? /size/ : name.endsWith('Ms') ? /duration/ : /whole number/, name);
      t.equal(definition(limit).minimum, limitMinimum(name as LimitName), `least of ${name}`);
    }
    t.strictSame(Object.keys(classSchema?.properties ?? {}), [...classes]);
    for (const name of classes) {
      t.strictSame(classSchema?.properties?.[name]?.default, classPolicies[name]);
      t.strictSame(Object.keys(definition(classSchema?.properties?.[name]).properties ?? {}), Object.keys(classPolicies[name]));
    }
  });

  t.test('describes every key and forbids all others', async (t) => {
    const walk = (part: JsonSchema, path: string): void => {
      if (part.properties !== undefined) t.equal(part.additionalProperties, false, `${path} forbids unknown keys`);
      for (const [key, child] of Object.entries(part.properties ?? {})) {
        t.type(child.description, 'string', `${path}.${key} is described`);
        walk(child, `${path}.${key}`);
      }
      for (const [key, child] of Object.entries(part.definitions ?? {})) walk(child, key);
    };
    walk(schema, 'leasehold.yaml');
  });

  t.test('accepts the example, which shows every key', async (t) => {
    const text = readFileSync(join(dirname(configSchemaPath()), 'example.yaml'), 'utf8');
    const { options } = await loadText(text);
    t.match(options, { devices: ['sim:24MiB'], models: { tales: { ttlMs: 600_000 } }, limits: { requestDeadlineMs: 120_000 } });
    const all = [schema, ...['model', 'worker'].map((name) => schema.definitions?.[name] ?? {})].flatMap((part) => Object.keys(part.properties ?? {}));
    t.strictSame(all.filter((key) => !new RegExp(`^[ #]*${key}:`, 'm').test(text)), []);
    t.type(parse(text), 'object');
  });

  t.test('has an example that needs no model: every source is a script that the simulated engine takes', async (t) => {
    const { options } = await load({ flags: { config: join(dirname(configSchemaPath()), 'simulated.yaml') } });
    t.match(options, { devices: ['sim:24GiB'], hostMemory: { lease: 'sim:64GiB' } });
    const models = Object.values(options.models ?? {});
    t.strictSame(models.map(({ engine }) => engine), ['simulated', 'simulated', 'simulated']);
    const sizes = await Promise.all(models.map(async ({ source }) => (await readModelScript({ source, options: {} } as unknown as ModelSpec)).weightsBytes / 1024 ** 3));
    t.strictSame(sizes, [14, 12, 4], 'story and coder take turns');
  });

  t.test('ships with the package', async (t) => {
    const { files } = JSON.parse(readFileSync(join(dirname(configSchemaPath()), '..', '..', 'package.json'), 'utf8')) as { files: string[] };
    t.ok(files.includes('src/config/schema.json') && files.includes('src/config/example.yaml') && files.includes('src/config/simulated.yaml'));
  });
});

t.test('durations are whole, bounded and never guessed', async (t) => {
  for (const [text, ms] of [['0', 0], ['250ms', 250], ['30s', 30_000], ['5m', 300_000], ['2h', 7_200_000], ['30d', 2_592_000_000], [1500, 1500]] as const) {
    t.equal(parseDurationMs(text), ms, String(text));
  }
  for (const text of ['', '-1', '1.5s', '5 m', '5M', 's', '1h30m', '31d', '99999999999', 'NaN', 1.5, -1, Number.NaN]) {
    t.equal(parseDurationMs(text), null, String(text));
  }
});

t.test('a slip of the pen is recognised, another word is not', async (t) => {
  t.equal(editDistance('abcd', 'abdc', 9), 1, 'neighbours swapped');
  t.equal(editDistance('abc', 'xyz', 2), 2, 'never more than the limit');
  t.equal(suggest('Modles', ['models', 'limits']), 'models');
  t.equal(suggest('contextTokens', ['context', 'class']), null);
  t.equal(suggest('x', []), null);
  t.strictSame(nearest('evictonMs', ['evictionMs', 'drainMs']), ['evictionMs']);
  t.strictSame(nearest('Bytes', ['frameBytesMax', 'outgoingBytesMax', 'leasesMax', 'heldBytesMax', 'logBytesMax']), ['frameBytesMax', 'outgoingBytesMax', 'heldBytesMax'], 'those that it is a part of, three at the most');
  t.strictSame([didYouMean([]), didYouMean(['a']), didYouMean(['a', 'b', 'c'])], ['', '; did you mean a?', '; did you mean a, b or c?']);
});

t.test('what passes at a glance passes the schema too, and nothing else is waved through', async (t) => {
  const source = { name: 'a test', help: () => 'Mend it.', locate: () => ({ where: 'there', line: null, column: null }) };
  const plain = [{}, { state: '/tmp/x' }, { devices: ['auto'] }, { devices: 'cpu' }, { devices: ['sim:24MiB', 'sim:1GB', 'sim:1048576'], state: 's' }];
  for (const value of plain) {
    t.ok(isPlainlyValid(value), JSON.stringify(value));
    await t.resolves(assertValid(value, source), JSON.stringify(value));
  }
  const others = [
    null, [], 'auto', { devices: [] }, { devices: ['auto', 'auto'] }, { devices: ['sim:0MiB'] }, { devices: ['sim:24MiB,floor=1MiB'] }, { devices: [1] },
    { state: '' }, { state: 7 }, { state: 'x'.repeat(4_097) }, { models: {} }, { state: '/tmp/x', extra: 1 },
  ];
  for (const value of others) t.notOk(isPlainlyValid(value), JSON.stringify(value).slice(0, 60));
});

t.test('what is nested without end is refused by its line, before a parser descends with it', async (t) => {
  const deep = /nested more than 64 deep/;
  for (const [what, text, line] of [
    ['lists', `models: ${'['.repeat(20_000)}${']'.repeat(20_000)}`, 1], ['maps', `state: s\nmodels: ${'{a: '.repeat(20_000)}1${'}'.repeat(20_000)}`, 2],
    ['entries', `models:\n${'- '.repeat(20_000)}a`, 2], ['lines', Array.from({ length: 1_000 }, (_, depth) => `${' '.repeat(depth)}a:`).join('\n'), 65],
  ] as const) {
    const error = await refusal(loadText(text));
    t.match(error, { code: 'config_invalid', message: deep }, what);
    t.match(error.message, `line ${String(line)}`, what);
  }
});

t.test('a number that is none is called by its name', async (t) => {
  for (const [text, named] of [['limits: {workersMax: .nan}', 'NaN'], ['limits: {frameBytesMax: .inf}', 'Infinity'], ['limits: {terminateGraceMs: 1e999}', 'Infinity'], ['reserve: -.inf', '-Infinity']] as const) {
    t.match(await refusal(loadText(text)), { code: 'config_invalid', message: new RegExp(`not ${named}\\.`) }, text);
  }
});
