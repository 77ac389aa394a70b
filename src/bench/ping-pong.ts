/** A bare ping-pong over node:net: what the socket alone costs, with or without the codec. The measure that a lease is held against. */
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { FrameDecoder, frameHeaderBytes } from '../../protocol/index.js';
import { createCodec } from '../../protocol/node/index.js';
import { grantFrame, releaseFrame, requestFrame } from './frames.js';
import { microsecondsSince } from './percentiles.js';

/** The same bytes, only sent and counted; or decoded and encoded anew at both ends with the wire's own codec (D39). */
export type PingPongKind = 'bytes' | 'codec';

const frameBytesMax = 64 * 1024;

/** The answering side; runs in the process that hosts the broker. */
export async function servePingPong(path: string, kind: PingPongKind, device: string): Promise<Server> {
  const server = createServer((socket) => { answer(socket, kind, device); });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return server;
}

function answer(socket: Socket, kind: PingPongKind, device: string): void {
  const decoder = new FrameDecoder(frameBytesMax);
  const codec = createCodec();
  const fixed = codec.encode(grantFrame(1, device));
  const releaseBytes = codec.encode(releaseFrame('0123456789ab-s1-l1')).length - frameHeaderBytes;
  socket.on('data', (chunk) => {
    for (const body of decoder.push(chunk)) {
      const reply = kind === 'codec' ? toReply(codec, body, device) : body.length === releaseBytes ? null : fixed;
      if (reply !== null) socket.write(reply);
    }
  });
}

function toReply(codec: ReturnType<typeof createCodec>, body: Uint8Array, device: string): Uint8Array | null {
  const message = codec.decode(body) as { readonly type: string; readonly id?: number };
  return message.type === 'request_vram_budget' ? codec.encode(grantFrame(message.id ?? 0, device)) : null;
}

export interface PingPong {
  /** Round trips of release and request to grant; microseconds of each. */
  measure(rounds: number): Promise<Float64Array>;
  close(): void;
}

/** The asking side: one connection for as many measures as are wanted. */
export async function openPingPong(path: string, kind: PingPongKind, device: string): Promise<PingPong> {
  const socket = dial(path);
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  const decoder = new FrameDecoder(frameBytesMax);
  const codec = createCodec();
  const fixed = Buffer.concat([codec.encode(releaseFrame('0123456789ab-s1-l1')), codec.encode(requestFrame(1, device))]);
  let lease = '0123456789ab-s1-l1';
  let sent = 0;
  let answered = (): void => undefined;
  socket.on('data', (chunk) => {
    for (const body of decoder.push(chunk)) {
      if (kind === 'codec') lease = (codec.decode(body) as { readonly lease: string }).lease;
      answered();
    }
  });
  const send = (): void => {
    sent += 1;
    if (kind === 'bytes') {
      socket.write(fixed);
    } else {
      socket.write(codec.encode(releaseFrame(lease)));
      socket.write(codec.encode(requestFrame(sent, device)));
    }
  };
  return {
    measure: (rounds) => new Promise((resolve) => {
      const durations = new Float64Array(rounds);
      let round = 0;
      let start = process.hrtime.bigint();
      answered = () => {
        durations[round] = microsecondsSince(start);
        round += 1;
        if (round === rounds) { resolve(durations); return; }
        start = process.hrtime.bigint();
        send();
      };
      send();
    }),
    close: () => { socket.destroy(); },
  };
}
