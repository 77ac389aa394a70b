/** The JSON Schema of leasehold.yaml, read from its file: editors, tests and this program use the same one. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What this project uses of JSON Schema (draft 07). */
export interface JsonSchema {
  readonly title?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly propertyNames?: JsonSchema;
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema;
  readonly allOf?: readonly JsonSchema[];
  readonly $ref?: string;
  readonly definitions?: Readonly<Record<string, JsonSchema>>;
  readonly enum?: readonly string[];
  readonly default?: unknown;
  readonly minimum?: number;
}

const schemas = new Map<string, JsonSchema>();

/** By path from the package's root: JSON modules still warn on Node 20, and the compiled tree holds no JSON. */
export function packagePath(...steps: readonly string[]): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return join(folder, ...steps);
}

export const configSchemaPath = (): string => packagePath('src', 'config', 'schema.json');

/** A JSON Schema of ours, read once. */
export function schemaAt(path: string): JsonSchema {
  const known = schemas.get(path) ?? JSON.parse(readFileSync(path, 'utf8')) as JsonSchema;
  schemas.set(path, known);
  return known;
}

export const configSchema = (): JsonSchema => schemaAt(configSchemaPath());
