/** A GGUF model that was split into several files, by their names. */

const splitName = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;

/** All parts of a split model, in order, whichever of them was named; the path alone when it is no part. */
export function partPaths(path: string): readonly string[] {
  const [, stem, , total] = splitName.exec(path) ?? [];
  if (stem === undefined || total === undefined || Number(total) === 0) return [path];
  return Array.from({ length: Number(total) }, (_, index) => `${stem}-${String(index + 1).padStart(5, '0')}-of-${total}.gguf`);
}

/** The GGUF models among a folder's files: of one in parts its first, and no projectors. */
export function ggufModels(names: readonly string[]): readonly string[] {
  return names.filter((name) => /\.gguf$/i.test(name) && !/mmproj/i.test(name) && partPaths(name)[0] === name).sort();
}

const namesShownMax = 8;

/** What is wrong with a folder of several, with their names, so that one can be taken from it. */
export function severalGgufs(models: readonly string[]): string {
  const more = models.length - namesShownMax;
  return `it has ${String(models.length)} GGUF models; name one of them: ${models.slice(0, namesShownMax).join(', ')}${more > 0 ? ` and ${String(more)} more` : ''}`;
}
