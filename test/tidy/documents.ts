/** Documents that must agree with what they describe. */
import { allFiles, has, read } from './tree.js';

/** Codes in the error table. */
export function errorCodes(): string[] {
  const { errors } = JSON.parse(read('protocol/errors.json')) as { errors: { code: string }[] };
  return errors.map(({ code }) => code);
}

/** Codes that a row of the table in protocol/README.md starts with. */
export function documentedCodes(): Set<string> {
  return new Set([...read('protocol/README.md').matchAll(/^\|[^\n]*?`([a-z][a-z0-9_]*)`/gm)].map((match) => match[1] ?? ''));
}

/** True when the generated table names the code, as a key or a string. */
export function generatedCodes(): Set<string> {
  return new Set([...read('protocol/errors.generated.ts').matchAll(/[\w']*\b([a-z][a-z0-9_]*)\b/g)].map((match) => match[1] ?? ''));
}

const adrFile = /^adrs\/\d{4}-[a-z0-9-]+\.md$/;
const adrMetadata = ['Date', 'Status', 'Tags'];
const adrSections = ['Context and Problem', 'Options considered', 'Decision', 'Consequences', 'How we would know it is wrong'];

/** Sentences, one for each thing that a decision record or their index lacks. */
export function adrFaults(): string[] {
  const inFolder = allFiles.filter((path) => path.startsWith('adrs/') && path.endsWith('.md') && path !== 'adrs/README.md');
  const index = has('adrs/README.md') ? read('adrs/README.md') : '';
  const numbers = new Map<string, string>();
  return inFolder.flatMap((path) => {
    if (!adrFile.test(path)) return [`${path} is not named NNNN-decision-as-a-sentence.md`];
    const number = path.slice('adrs/'.length, 'adrs/'.length + 4);
    const twin = numbers.get(number);
    numbers.set(number, path);
    const text = read(path);
    return [
      ...(twin === undefined ? [] : [`${path} has the number of ${twin}`]),
      ...(index.includes(`(${path.slice('adrs/'.length)})`) ? [] : [`adrs/README.md does not link to ${path}`]),
      ...adrMetadata.filter((key) => !new RegExp(`^(\\|\\s*|\\*\\*|- )?\\**${key}\\**\\s*[:|]`, 'm').test(text)).map((key) => `${path} has no ${key}`),
      ...adrSections.filter((title) => !new RegExp(`^##+ ${title}`, 'mi').test(text)).map((title) => `${path} has no section "${title}"`),
    ];
  });
}

/** Links of the index that lead nowhere. */
export function deadAdrLinks(): string[] {
  if (!has('adrs/README.md')) return [];
  return [...read('adrs/README.md').matchAll(/\((\d{4}-[^)#]+\.md)\)/g)].map((match) => `adrs/${match[1] ?? ''}`).filter((path) => !has(path));
}

/** What the README links to and the package does not hold, or that is not there at all. */
export function unshippedLinks(): string[] {
  const { files } = JSON.parse(read('package.json')) as { readonly files: readonly string[] };
  const isShipped = (path: string): boolean => files.some((entry) => path === entry || path.startsWith(`${entry}/`));
  return [...read('README.md').matchAll(/\]\(([^)#:]+)/g)].map((match) => match[1] ?? '').filter((path) => !isShipped(path) || !has(path));
}
