/** The unit for systemd says what the command understands, and leaves workers the time that they are promised. */
import t from 'tap';
import { defaultLimits } from '../../protocol/index.js';
import { reattachGraceMs } from '../../src/cli/commands/up.js';
import { exitCodes } from '../../src/cli/exit-codes.js';
import { finish } from '../cli/command-world.js';
import { has, read } from '../tidy/tree.js';

const path = 'packaging/leasehold.service';

/** Values by key; no key of the unit has two. */
function keysOf(unit: string): ReadonlyMap<string, string> {
  const lines = unit.split('\n').filter((line) => /^[A-Z]\w*=/.test(line)).map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const);
  const keys = new Map(lines);
  if (keys.size < lines.length) throw new Error(`${path} has a key twice`);
  return keys;
}

t.test('the unit starts a command that exists, with options that it has', async (t) => {
  const [env, name = '', command = '', ...args] = (keysOf(read(path)).get('ExecStart') ?? '').split(' ');
  const { bin, files } = JSON.parse(read('package.json')) as { bin: Record<string, string>; files: string[] };
  t.equal(env, '/usr/bin/env');
  t.ok(has(bin[name] ?? 'nothing'), `${name} is what the package installs`);
  t.ok(files.includes('packaging'), 'and the unit is in the package');
  const { code, out } = await finish([command, '--help']);
  t.equal(code, 0);
  t.match(out, new RegExp(`^Usage: ${name} ${command}\\b`, 'm'));
  const options = args.filter((arg) => arg.startsWith('-'));
  t.ok(options.length > 0);
  for (const option of options) t.match(out, new RegExp(`^ +(-\\w, )?${option}\\b`, 'm'));
});

t.test('the state folder is the one that systemd makes, closed to others, and stays over a restart', async (t) => {
  const keys = keysOf(read(path));
  t.match(keys.get('ExecStart'), new RegExp(`--state %t/${keys.get('RuntimeDirectory') ?? 'nothing'}$`));
  t.equal(keys.get('RuntimeDirectoryMode'), '0700');
  t.equal(keys.get('RuntimeDirectoryPreserve'), 'restart');
});

t.test('workers outlive a broker that is started again within their grace, and one that is stopped has time to end them', async (t) => {
  const keys = keysOf(read(path));
  t.strictSame([keys.get('Type'), keys.get('KillMode'), keys.get('Restart')], ['exec', 'process', 'on-failure']);
  t.ok(Number(keys.get('RestartSec')) * 1_000 * 3 <= reattachGraceMs, 'a start takes its time, too');
  t.ok(Number(keys.get('TimeoutStopSec')) * 1_000 >= (defaultLimits.terminateGraceMs + defaultLimits.killConfirmMs) * 2);
  t.equal(keys.get('RestartPreventExitStatus'), String(exitCodes.usage), 'what a person has to put right is not tried again');
  t.strictSame([keys.get('IPAddressDeny'), keys.get('IPAddressAllow')], ['any', 'localhost']);
});
