/** A model file as a whole: all its parts, and what a header says about its model as far as that can be judged here. */
import { unusableFile, unusableReason } from '../../src/models/formats/fault.js';
import { readGgufHeader, type GgufHeader } from '../../src/models/formats/gguf-header.js';
import { partPaths } from '../../src/models/formats/gguf-parts.js';
import { withFile } from '../../src/models/formats/source.js';

/** A model file (or the first of its parts) whose header has been read and checked. */
export interface CheckedModel {
  /** Its header says that it makes vectors: it pools its tokens, or looks ahead in the text. */
  readonly embeds: boolean;
  /** Its vector is what its last token ends in, and no token looks ahead: so it may be evaluated piece by piece. */
  readonly poolsLast: boolean;
  /** The path to load: the first part when the model is split. */
  readonly path: string;
  readonly header: GgufHeader;
  readonly architecture: string;
  /** Bytes of all tensors over all parts. */
  readonly tensorBytes: number;
  /** Tells this state of the file from any later one. */
  readonly fingerprint: string;
}

const layersMax = 512;
/** As llama.cpp numbers them; without pooling the bindings take the last token. */
const poolingTypes = { none: 0, last: 3 } as const;

/** Reads and checks the model at `path`, all parts of it. Rejects with `model_invalid` and what is wrong. */
export async function checkModel(path: string, fingerprintOf: (path: string) => Promise<string>, signal: AbortSignal): Promise<CheckedModel> {
  const paths = partPaths(path);
  const [first = path, ...rest] = paths;
  const header = await readHeader(first, signal);
  let tensorBytes = header.tensorBytes;
  const fingerprints = [await fingerprintOf(first)];
  for (const part of rest) {
    const partHeader = await readHeader(part, signal).catch((error: unknown) => {
      const reason = unusableReason(error);
      throw reason === null ? error : unusableFile(path, `of its part ${part}: ${reason}`, error);
    });
    tensorBytes += partHeader.tensorBytes;
    fingerprints.push(await fingerprintOf(part));
  }
  const architecture = header.scalars.get('general.architecture');
  if (typeof architecture !== 'string' || architecture === '') throw unusableFile(path, 'it names no architecture');
  checkTokenizer(path, header);
  checkHyperparameters(path, header, architecture);
  const pooling = Number(header.scalars.get(`${architecture}.pooling_type`) ?? poolingTypes.none);
  const looksAhead = header.scalars.get(`${architecture}.attention.causal`) === false;
  const poolsLast = !looksAhead && (pooling === poolingTypes.none || pooling === poolingTypes.last);
  return { embeds: pooling !== poolingTypes.none || looksAhead, poolsLast, path: first, header, architecture, tensorBytes, fingerprint: fingerprints.join(' ') };
}

function readHeader(path: string, signal: AbortSignal): Promise<GgufHeader> {
  return withFile(path, (source) => readGgufHeader(source, signal));
}

function checkTokenizer(path: string, { arrays }: GgufHeader): void {
  const tokens = arrays.get('tokenizer.ggml.tokens');
  if (tokens === undefined) return;
  if (tokens.repeated !== null) throw unusableFile(path, `its vocabulary has the token ${JSON.stringify(tokens.repeated)} twice`);
  for (const key of ['tokenizer.ggml.token_type', 'tokenizer.ggml.scores']) {
    const beside = arrays.get(key);
    if (beside !== undefined && beside.length !== tokens.length) {
      throw unusableFile(path, `${key} has ${String(beside.length)} items for ${String(tokens.length)} tokens`);
    }
  }
}

/** What holds for every architecture; what else llama.cpp asserts is found out by vet.ts. */
function checkHyperparameters(path: string, { scalars }: GgufHeader, architecture: string): void {
  const within = (name: string, minimum: number, maximum: number): void => {
    const value = scalars.get(`${architecture}.${name}`);
    if ((typeof value === 'number' || typeof value === 'bigint') && !(value >= minimum && value <= maximum)) {
      throw unusableFile(path, `${architecture}.${name} is ${String(value)}; from ${String(minimum)} to ${String(maximum)} is possible`);
    }
  };
  within('block_count', 1, layersMax);
  within('embedding_length', 1, 1_048_576);
  within('context_length', 1, 2 ** 31 - 1);
  within('pooling_type', 0, 4);
  // Asserted while computing, which no vetting does.
  within('attention.layer_norm_rms_epsilon', 0, 1);
  within('attention.layer_norm_epsilon', 0, 1);
}
