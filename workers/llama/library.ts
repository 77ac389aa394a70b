/** node-llama-cpp, which is an optional peer: looked for when an engine starts, never at import. */
import { createRequire } from 'node:module';
import { LeaseholdError } from '../../protocol/index.js';

export type Library = typeof import('node-llama-cpp');

/** What is used of the library that interprets chat templates. */
export interface TemplateLibrary {
  readonly Template: new (source: string) => { render(variables: Readonly<Record<string, unknown>>): string };
  readonly Environment: { readonly prototype: { set: (this: object, name: string, value: unknown) => unknown } };
  readonly Interpreter: { readonly prototype: { evaluate: (this: object, statement: { readonly type: string } | undefined, environment: unknown) => { readonly value: unknown } } };
}

export async function importLibrary(): Promise<Library> {
  try {
    return await import('node-llama-cpp');
  } catch (error) {
    throw LeaseholdError.from(error, 'engine_missing', { engine: 'llama' });
  }
}

/**
 * The interpreter of templates that node-llama-cpp itself depends on, found from where it is installed. Its chat wrappers
 * put marks in place of the messages, which changes what a template that looks into them renders; the interpreter alone
 * does not.
 */
export function requireTemplateLibrary(): TemplateLibrary {
  const fromLibrary = createRequire(createRequire(import.meta.url).resolve('node-llama-cpp'));
  return fromLibrary('@huggingface/jinja') as TemplateLibrary;
}
