/**
 * A holder that goes into the background as daemons do: it connects, hands the connection to a process that it starts,
 * and ends. With `stay` as third argument it holds by itself. Who holds says its pid and lease as a line of JSON.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { socketStream } from '../../protocol/node/socket-stream.js';
import { connectBroker } from '../../src/client/index.js';
import { readStateFolder } from '../../src/orchestrator/index.js';
import { MiB } from './support.js';

const [stateFolder = '', model = '', how = ''] = process.argv.slice(2);
const state = readStateFolder(stateFolder);
if (state === null) throw new Error('there is no state');

async function connected(path: string): Promise<Socket> {
  const socket = new Socket().connect(path);
  await once(socket, 'connect');
  return socket.pause();
}

const socket = how === 'handed' ? new Socket({ fd: 3, readable: true, writable: true }) : await connected(state.socketPath);
if (how === 'hands') {
  spawn(process.execPath, [process.argv[1] ?? '', stateFolder, model, 'handed'], { detached: true, stdio: ['ignore', 'inherit', 'inherit', socket] }).unref();
  process.exit();
}
const holder = await connectBroker({ stream: socketStream(socket, 'handed', 5_000), secret: state.secret, role: 'holder', name: how });
const lease = await holder.holdLease({ model, device: holder.devices[0]?.device ?? '', bytes: 20 * MiB, onEvict: () => 'busy' });
await lease.loaded({ residentBytes: 20 * MiB });
process.stdout.write(`${JSON.stringify({ pid: process.pid, lease: lease.lease })}\n`);
