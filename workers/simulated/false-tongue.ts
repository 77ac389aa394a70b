/** A process that lies on the wire: it answers twice, and answers what others were asked. What it says first is true. */
import { FrameDecoder, defaultLimits } from '../../protocol/index.js';
import { createCodec, type ByteStream } from '../../protocol/node/index.js';
import type { ProcessScript } from './script.js';

/** Commands near its own, which it has not been given. */
const others = [-1, 1, 3];
/** A lease that no broker grants. */
const nobodys = 'nobodys-lease';

/** `stream`, which from now on tells lies after every answer that a model has been moved. */
export function withFalseTongue(stream: ByteStream, { answersTwice, answersWrong }: Pick<ProcessScript, 'answersTwice' | 'answersWrong'>): ByteStream {
  if (!answersTwice && !answersWrong) return stream;
  const sent = new FrameDecoder(defaultLimits.frameBytesMax);
  const codec = createCodec();
  const write = stream.write.bind(stream);
  let lies: Uint8Array[] = [];
  const after = (message: { readonly id: number }): object[] => [
    ...(answersTwice ? [message] : []),
    ...(answersWrong ? [...others.map((other) => ({ ...message, id: Math.max(0, message.id + other) })), { type: 'release_lease', lease: nobodys, cause: 'unloaded', failure: null }] : []),
  ];
  stream.write = (chunk) => {
    for (const body of sent.push(chunk)) {
      const message = codec.decode(body);
      if (isDone(message)) lies.push(...after(message).map((lie) => codec.encode(lie)));
    }
    write(chunk);
    // Never in the middle of a frame: that would be another fault.
    if (sent.end().kind !== 'clean') return;
    for (const lie of lies) write(lie);
    lies = [];
  };
  return stream;
}

function isDone(message: unknown): message is { readonly type: 'done'; readonly id: number } {
  return typeof message === 'object' && message !== null && 'type' in message && message.type === 'done' && 'id' in message && typeof message.id === 'number';
}
