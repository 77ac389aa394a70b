/** The names in a listing, before anything is done with them; and which of the files a model is made of. */
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { fileNameFault } from '../formats/file-name.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';

/** Throws `listing_too_large` or `file_name_unsafe`: one name that could reach outside its folder, on any system, refuses the repository. */
export function checkListing({ name, files }: Repository, { repositoryFilesMax }: Pick<Limits, 'repositoryFilesMax'>): void {
  if (files.length > repositoryFilesMax) {
    throw new LeaseholdError('listing_too_large', { repository: name, what: 'the number of its files', found: files.length, limit: repositoryFilesMax, setting: 'limits.repositoryFilesMax' });
  }
  const seen = new Set<string>();
  for (const { path } of files) {
    const folded = path.normalize('NFC').toLowerCase();
    // One would be written over the other where names differ in nothing else.
    const fault = fileNameFault(path) ?? (seen.has(folded) ? 'stands there twice' : null);
    if (fault !== null) throw new LeaseholdError('file_name_unsafe', { repository: name, file: JSON.stringify(path.slice(0, 120)), reason: fault.replace(/^it /, '') });
    seen.add(folded);
  }
}

/** What besides weights is taken, by name alone: in the repository's root, and only of kinds that nothing executes. */
const assetNames = [
  'added_tokens.json', 'config.json', 'generation_config.json', 'hf_quant_config.json', 'merges.txt', 'preprocessor_config.json', 'special_tokens_map.json', 'video_preprocessor_config.json',
];
const assetShapes = [/^chat_template[^/]*\.(json|jinja|txt)$/, /^processor[^/]*\.json$/, /^tokenizer[^/]*\.(json|model|txt)$/, /^vocab[^/]*\.(json|txt)$/, /^[^/]+\.(model|tiktoken)$/];
/** Applied last, whatever a name was taken for. */
const denied = /\.(py|pyc|pkl|pickle|pt|pth|bin|ckpt|so|dll|h5|msgpack|npz|gguf)$/i;

export function isAsset(path: string): boolean {
  return (assetNames.includes(path) || assetShapes.some((shape) => shape.test(path))) && !denied.test(path);
}

/** Files besides the weights. Throws `listing_too_large` for one that is no asset by its size. */
export function assetsOf({ name, files }: Repository, { modelAssetBytesMax }: Pick<Limits, 'modelAssetBytesMax'>): readonly RepositoryFile[] {
  const assets = files.filter(({ path }) => isAsset(path));
  const large = assets.find(({ sizeBytes }) => (sizeBytes ?? 0) > modelAssetBytesMax);
  if (large === undefined) return assets;
  throw new LeaseholdError('listing_too_large', { repository: name, what: `the size of ${large.path}`, found: large.sizeBytes, limit: modelAssetBytesMax, setting: 'limits.modelAssetBytesMax' });
}
