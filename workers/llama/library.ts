/** node-llama-cpp, which is an optional peer: looked for when an engine starts, never at import. */
import { createRequire } from 'node:module';
import { LeaseholdError } from '../../protocol/index.js';

export type Library = typeof import('node-llama-cpp');

/** A parsed chat template. */
export interface Template {
  render(variables: Readonly<Record<string, unknown>>): string;
}
export type TemplateParser = new (source: string) => Template;

export async function importLibrary(): Promise<Library> {
  try {
    return await import('node-llama-cpp');
  } catch (error) {
    throw LeaseholdError.from(error, 'engine_missing', { engine: 'llama' });
  }
}

/**
 * The template parser that node-llama-cpp itself depends on, found from where it is installed. Its chat wrappers put
 * marks in place of the messages, which changes what a template that looks into them renders; the parser alone does not.
 */
export function requireTemplateParser(): TemplateParser {
  const fromLibrary = createRequire(createRequire(import.meta.url).resolve('node-llama-cpp'));
  return (fromLibrary('@huggingface/jinja') as { readonly Template: TemplateParser }).Template;
}
