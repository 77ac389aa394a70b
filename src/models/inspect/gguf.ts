/** GGUF repositories: which of their files is meant, and whether it is whole. */
import { LeaseholdError } from '../../../protocol/index.js';
import { unusableReason } from '../formats/fault.js';
import type { GgufHeader } from '../formats/gguf-header.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import type { Reading } from '../reading/reading.js';
import { asLayoutFault, type OpenFile } from './open-file.js';

/** One model of a repository: a file, or all parts of one that was split. */
export interface GgufChoice {
  /** Its name without the numbers of parts and without `.gguf`. */
  readonly stem: string;
  /** Upper case, as `Q4_K_M`; null where its name holds none. */
  readonly quantization: string | null;
  /** In the order of their numbers. */
  readonly files: readonly RepositoryFile[];
  /** How many parts its names announce. */
  readonly parts: number;
}

const partShape = /^(.+)-(\d{5})-of-(\d{5})$/;
const quantShape = /(?:^|[-._/])((?:UD-)?(?:(?:IQ|TQ|Q)\d(?:_[A-Z0-9]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?))(?=$|[-._/])/gi;
/** Files of the same kind that are no model by themselves. */
const companions = /(^|[/_.-])(mmproj|imatrix)|(^|\/)mtp-/i;
const projectorArchitecture = 'clip';
/** What Ollama and llama.cpp take where nobody says which. */
const usual = 'Q4_K_M';

export function ggufChoices({ files }: Pick<Repository, 'files'>): readonly GgufChoice[] {
  const groups = new Map<string, { stem: string; parts: number; numbered: [number, RepositoryFile][] }>();
  for (const file of files) {
    if (!/\.gguf$/i.test(file.path) || companions.test(file.path)) continue;
    const whole = file.path.replace(/\.gguf$/i, '');
    const [, stem = whole, number = '1', of = '1'] = partShape.exec(whole) ?? [];
    const key = `${stem}#${of}`;
    const group = groups.get(key) ?? { stem, parts: Number(of), numbered: [] };
    group.numbered.push([Number(number), file]);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ stem, parts, numbered }) => ({
    stem, parts, quantization: quantizationIn(stem), files: numbered.sort(([left], [right]) => left - right).map(([, file]) => file),
  }));
}

/**
 * The projector that a model sees images through, chosen as llama.cpp does: it lies in the model's folder or one above,
 * the deeper the better; of several there, the one whose bits are nearest to the model's. Null where there is none.
 */
export function projectorFor({ files }: Pick<Repository, 'files'>, { stem }: GgufChoice): RepositoryFile | null {
  const folderOf = (path: string): string => path.slice(0, path.lastIndexOf('/') + 1);
  const bitsOf = (name: string): number => Number(/\d+/.exec(quantizationIn(name) ?? '')?.[0] ?? 0);
  const fitting = files.filter(({ path }) => /\.gguf$/i.test(path) && /mmproj/i.test(path) && folderOf(stem).startsWith(folderOf(path)));
  const distance = ({ path }: RepositoryFile): number => Math.abs(bitsOf(path.replace(/\.gguf$/i, '')) - bitsOf(stem));
  const [best] = fitting.sort((one, other) => folderOf(other.path).length - folderOf(one.path).length || distance(one) - distance(other));
  return best ?? null;
}

/** The last that a name holds is the file's own; folders come before it. */
function quantizationIn(stem: string): string | null {
  return [...stem.matchAll(quantShape)].at(-1)?.[1]?.toUpperCase() ?? null;
}

/** The model that `selection` means: a file, a quantisation, or (null) the only one, else the usual one. Throws with a list to choose from. */
export function chooseGguf(repository: Repository, selection: string | null): GgufChoice {
  const choices = ggufChoices(repository);
  const list = (some: readonly GgufChoice[]): string => some.map(({ quantization, files }) => `${quantization ?? files[0]?.path ?? '?'} (${sizeText(files)})`).join(', ') || 'none at all';
  const meant = selection === null ? unsaid(choices) : said(choices, selection);
  const asked = selection === null ? 'no quantisation' : selection;
  if (meant.length === 0) throw new LeaseholdError('gguf_missing', { repository: repository.name, asked, choices: list(choices) });
  const [choice] = meant;
  if (choice === undefined || meant.length > 1) throw new LeaseholdError('gguf_ambiguous', { repository: repository.name, asked, choices: selection === null ? list(meant) : meant.map(({ files }) => files[0]?.path).join(', ') });
  requireWhole(repository, choice);
  return choice;
}

function unsaid(choices: readonly GgufChoice[]): readonly GgufChoice[] {
  const usualOnes = choices.filter(({ quantization }) => quantization === usual);
  return choices.length > 1 && usualOnes.length === 1 ? usualOnes : choices;
}

function said(choices: readonly GgufChoice[], selection: string): readonly GgufChoice[] {
  const plain = selection.replace(/\.gguf$/i, '').toLowerCase();
  const byFile = choices.filter(({ stem, files }) => stem.toLowerCase() === plain || files.some(({ path }) => path.replace(/\.gguf$/i, '').toLowerCase() === plain));
  if (byFile.length > 0) return byFile;
  const byQuantization = choices.filter(({ quantization }) => quantization?.toLowerCase() === plain);
  if (byQuantization.length > 0) return byQuantization;
  // `F16` and `FP16` are one thing under two names.
  return choices.filter(({ quantization }) => quantization?.replace('FP', 'F') === plain.toUpperCase().replace('FP', 'F'));
}

/** A split model must have each of its parts once. */
function requireWhole({ name }: Repository, { files, parts, stem }: GgufChoice): void {
  const numbers = files.map(({ path }) => Number(partShape.exec(path.replace(/\.gguf$/i, ''))?.[2] ?? 1));
  const missing = Array.from({ length: Math.min(parts, 1_000) }, (_, index) => index + 1).filter((number) => !numbers.includes(number));
  const fault = parts > 1_000 ? `it is said to have ${String(parts)} parts` : missing.length > 0 ? `of ${String(parts)} parts ${missing.slice(0, 8).join(', ')} are missing` : numbers.some((number) => number < 1 || number > parts) ? 'its parts are numbered wrongly' : null;
  if (fault !== null) throw new LeaseholdError('gguf_incomplete', { repository: name, file: `${stem}.gguf`, reason: fault });
}

export interface GgufFacts {
  readonly architecture: string;
  readonly contextTokens: number;
}

/** Reads the header of every part: it must be a GGUF of a text model, and its parts must be what they say. */
export async function inspectGguf(open: OpenFile, reading: Reading, repository: Repository, choice: GgufChoice): Promise<GgufFacts> {
  const headers = await Promise.all(choice.files.map((file) => asLayoutFault(repository, file.path, () => reading.ggufHeader(open(file)))));
  const incomplete = (reason: string): LeaseholdError => new LeaseholdError('gguf_incomplete', { repository: repository.name, file: `${choice.stem}.gguf`, reason });
  headers.forEach((header, index) => {
    const [count, number] = [whole(header, 'split.count') ?? 1, whole(header, 'split.no') ?? 0];
    if (count !== choice.parts || number !== index) throw incomplete(`part ${String(index + 1)} says that it is part ${String(number + 1)} of ${String(count)}`);
  });
  const [first] = headers;
  const tensors = first === undefined ? null : whole(first, 'split.tensors.count');
  const held = headers.reduce((sum, header) => sum + header.tensors, 0);
  if (tensors !== null && choice.parts > 1 && tensors !== held) throw incomplete(`its parts hold ${String(held)} tensors of ${String(tensors)}`);
  return factsOf(first, repository.name, choice.files[0]?.path ?? choice.stem);
}

/** Reads the header of a projector: it must be a GGUF of that kind. */
export async function inspectProjector(open: OpenFile, reading: Reading, repository: Repository, file: RepositoryFile): Promise<void> {
  const fault = (reason: string, cause?: unknown): LeaseholdError => new LeaseholdError('weights_layout_invalid', { repository: repository.name, file: file.path, reason }, {
    help: 'It is what sees images or hears; --no-projector leaves it out. Or choose another revision, or tell its owner.', ...cause === undefined ? {} : { cause },
  });
  const header = await reading.ggufHeader(open(file)).catch((error: unknown) => {
    const reason = unusableReason(error);
    throw reason === null ? error : fault(reason, error);
  });
  const architecture = header.scalars.get('general.architecture');
  if (architecture !== projectorArchitecture) throw fault(`it is called a projector, and its architecture is ${architecture === undefined ? 'not stated' : JSON.stringify(architecture)}`);
}

function factsOf(header: GgufHeader | undefined, repository: string, file: string): GgufFacts {
  const architecture = header?.scalars.get('general.architecture');
  if (header === undefined || typeof architecture !== 'string' || architecture === '') throw new LeaseholdError('model_config_invalid', { repository, file, reason: 'it does not say what architecture it has' });
  const contextTokens = whole(header, `${architecture}.context_length`);
  if (contextTokens === null || contextTokens < 1) throw new LeaseholdError('context_undeclared', { repository, found: `${architecture}.context_length is ${contextTokens === null ? 'not there' : String(contextTokens)}; it may be no text model` });
  return { architecture, contextTokens };
}

function whole({ scalars }: GgufHeader, key: string): number | null {
  const value = scalars.get(key);
  const number = typeof value === 'bigint' ? Number(value) : value;
  return typeof number === 'number' && Number.isSafeInteger(number) && number >= 0 ? number : null;
}

function sizeText(files: readonly RepositoryFile[]): string {
  return `${(files.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0) / 1024 ** 3).toFixed(2)} GiB`;
}
