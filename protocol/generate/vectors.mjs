// Golden vectors: an entry whose frame is empty gets the frame that the codec writes.
import { compiled } from './build.mjs';

export async function filledVectors(text) {
  const { createCodec } = await compiled('node/index.js');
  const codec = createCodec();
  const { vectors } = JSON.parse(text);
  let filled = text;
  for (const { name, message, frame } of vectors) {
    if (frame === undefined) throw new Error(`vector "${name}" has no frame; give an empty one to have it filled in`);
    if (frame !== '') continue;
    const hex = Buffer.from(codec.encode(message)).toString('hex');
    const entry = filled.indexOf(`{"name": ${JSON.stringify(name)},`);
    const at = filled.indexOf('"frame": ""', entry);
    if (entry < 0 || at < 0) throw new Error(`vector "${name}" is not laid out as the others`);
    filled = `${filled.slice(0, at)}"frame": "${hex}"${filled.slice(at + '"frame": ""'.length)}`;
  }
  return filled;
}
