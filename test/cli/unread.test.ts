// Nobody reads what is said: a terminal under Ctrl-S, a pipe whose reader stands still. The broker is there for others as before.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { outputStream } from '../../src/cli/io.js';
import { createOrchestrator, type Orchestrator } from '../../src/orchestrator/index.js';
import { until } from '../integration/support.js';
import { jsonLines } from './fake-io.js';

const main = join(dirname(fileURLToPath(import.meta.url)), '../../bin/leasehold.js');

/** Runs a command with both outputs on a terminal or a pipe of which nothing is read. Says its pid; how it ended, and what was unread by then. */
const unread = `
import array, fcntl, os, pty, subprocess, sys, termios
ours, its = pty.openpty() if sys.argv[1] == 'terminal' else os.pipe()
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=its, stderr=its)
print(child.pid, flush=True)
code = child.wait()
waiting = array.array('i', [0])
fcntl.ioctl(ours, termios.FIONREAD, waiting)
print(code, waiting[0], flush=True)
`;

async function attached(state: string): Promise<Orchestrator> {
  return until('the daemon', () => createOrchestrator({ stateFolder: state, broker: 'attach' }).catch(() => null));
}

for (const kind of ['terminal', 'pipe']) {
  t.test(`a daemon on a ${kind} that nobody reads answers as before, and ends when it is told to`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'lh-unread-'));
    t.teardown(() => { rmSync(folder, { recursive: true }); });
    const config = join(folder, 'leasehold.yaml');
    writeFileSync(config, 'devices: ["sim:12MiB"]\nstate: state\nhostMemory: { lease: off }\nlog: { level: debug }\n');
    const child = spawn('python3', ['-c', unread, kind, process.execPath, main, 'up', '--config', config], { stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = createInterface({ input: child.stdout });
    const said = (async (): Promise<string> => String((await once(lines, 'line'))[0]));
    const pid = Number(await said());
    t.teardown(() => { try { process.kill(pid, 'SIGKILL'); } catch { /* It has ended, as it should. */ } });
    const orchestrator = await attached(join(folder, 'state'));
    // Each is told of in several lines: some hundred kilobytes in all, of which a terminal holds four and a pipe some sixty.
    for (let turn = 0; turn < 400; turn++) {
      const lease = await orchestrator.lease({ model: 'mine', bytes: 1024 * 1024, onEvict: () => 'busy' });
      lease.release();
    }
    t.equal((await orchestrator.ledger()).counters['grants'], 400);
    await orchestrator.close();
    const ended = said();
    process.kill(pid, 'SIGTERM');
    const [code, unreadBytes] = (await ended).split(' ').map(Number);
    t.equal(code, 0);
    t.ok((unreadBytes ?? 0) >= (kind === 'terminal' ? 4_000 : 60_000), `as full as it gets (${String(unreadBytes)} bytes)`);
  });
}

t.test('what a reader that stands still may be owed has a bound; how much was left out is told once it reads on', async (t) => {
  const taken: string[] = [];
  let goOn: () => void = () => undefined;
  const stream = new Writable({ decodeStrings: false, write: (chunk: string, _encoding, done) => { taken.push(chunk); goOn = done; } });
  const output = outputStream(stream, {});
  const line = `{"event":"x","data":"${'x'.repeat(1024 * 1024)}"}\n`;
  for (let turn = 0; turn < 100; turn++) output.write(line);
  t.ok(output.unreadBytes > 32 * 1024 * 1024 && output.unreadBytes < 34 * 1024 * 1024, `${String(output.unreadBytes)} bytes are owed`);
  const drained = output.drained();
  while (stream.writableLength > 0) {
    goOn();
    await new Promise(setImmediate);
  }
  await drained;
  output.write(line);
  t.equal(taken.filter((text) => text === line).length, 32 + 1);
  t.strictSame(jsonLines(taken.filter((text) => text !== line).join('')), [{ event: 'output_dropped', writes: 68 }]);
});
