/** Runs in a piscina thread: one file's header, read through the port. */
import type { MessagePort } from 'node:worker_threads';
import { codeNamesBytesMax, findCodeNames } from '../formats/code-names.js';
import { readConfigJson, configBytesMax } from '../formats/config-json.js';
import { unusableFile, unusableReason } from '../formats/fault.js';
import { readGgufHeader } from '../formats/gguf-header.js';
import { readSafetensorsHeader, readSafetensorsNames } from '../formats/safetensors-header.js';
import { indexBytesMax, readIndexNames, readSafetensorsIndex } from '../formats/safetensors-index.js';
import type { ByteSource } from '../formats/source.js';
import type { Format, RangeAnswer, RangeRequest, ReadOutcome, ReadTask } from './task.js';

const readers: Readonly<Record<Format, (source: ByteSource, wanted: readonly string[]) => Promise<unknown>>> = {
  gguf: (source) => readGgufHeader(source),
  safetensors: (source) => readSafetensorsHeader(source),
  'safetensors names': (source) => readSafetensorsNames(source),
  index: async (source) => readSafetensorsIndex(await whole(source, indexBytesMax), source.name),
  'index names': async (source, wanted) => readIndexNames(await whole(source, indexBytesMax), source.name, wanted),
  'code names': async (source) => findCodeNames(await whole(source, codeNamesBytesMax), source.name),
  config: async (source) => readConfigJson(await whole(source, configBytesMax), source.name),
};

export default async function read({ format, name, sizeBytes, port, wanted }: ReadTask): Promise<ReadOutcome> {
  try {
    return { value: await readers[format](portSource(name, sizeBytes, port), wanted) };
  } catch (error) {
    const reason = unusableReason(error);
    if (reason === null) throw error;
    return { unusable: { source: name, reason } };
  } finally {
    port.close();
  }
}

async function whole(source: ByteSource, most: number): Promise<Uint8Array> {
  if (source.sizeBytes > most) throw unusableFile(source.name, `it has ${String(source.sizeBytes)} bytes; at most ${String(most)} are sensible`);
  return source.read(0, source.sizeBytes);
}

function portSource(name: string, sizeBytes: number, port: MessagePort): ByteSource {
  const waiting = new Map<number, { resolve(bytes: Uint8Array): void; reject(error: Error): void }>();
  let lastId = 0;
  port.on('message', (answer: RangeAnswer) => {
    const waiter = waiting.get(answer.id);
    waiting.delete(answer.id);
    if ('bytes' in answer) waiter?.resolve(answer.bytes);
    else waiter?.reject(unusableFile(name, 'a range of it could not be read'));
  });
  return {
    name,
    sizeBytes,
    read: (offset, length) => new Promise((resolve, reject) => {
      const request: RangeRequest = { id: ++lastId, offset, length };
      waiting.set(request.id, { resolve, reject });
      port.postMessage(request);
    }),
  };
}
