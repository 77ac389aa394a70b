/** Where the question comes from: the arguments, else standard input. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { CommandContext } from '../context.js';
import { writeAbove } from '../terminal/standing.js';

/** Largest question taken from standard input: what one message of the wire may hold. */
const promptBytesMax = 4 * 1024 * 1024;

/** Rejects with `input_invalid` when there is none, with the signal's reason when it is aborted. */
export async function readPrompt(context: CommandContext, words: readonly string[], signal: AbortSignal): Promise<string> {
  const fromWords = words.join(' ').trim();
  if (fromWords !== '') return fromWords;
  const { stdin, stderr } = context.io;
  if (stdin.isTTY === true && !context.json) writeAbove(stderr, context.errorPalette.dim('Write the question; end it with Ctrl-D on a line of its own.'));
  const text = await readAll(stdin, signal);
  if (text.trim() === '') throw new LeaseholdError('input_invalid', { field: 'prompt', reason: 'it is empty; give it as arguments or on standard input' }, { help: 'leasehold run MODEL \'What is 2 + 2?\'' });
  return text.replace(/\r?\n$/, '');
}

async function readAll(stdin: CommandContext['io']['stdin'], signal: AbortSignal): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const stop = () => { stdin.destroy(signal.reason as Error); };
  signal.addEventListener('abort', stop, { once: true });
  try {
    signal.throwIfAborted();
    for await (const chunk of stdin as AsyncIterable<Uint8Array | string>) {
      const part = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
      bytes += part.byteLength;
      if (bytes > promptBytesMax) throw new LeaseholdError('input_invalid', { field: 'prompt', reason: `it is longer than ${promptBytesMax} bytes` });
      chunks.push(part);
    }
  } finally {
    signal.removeEventListener('abort', stop);
  }
  return Buffer.concat(chunks).toString('utf8');
}
