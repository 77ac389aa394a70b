/** `config.json` as Python wrote it: an object, read within bounds, `NaN` and `Infinity` taken for nothing (B167). */
import { unusableFile } from './fault.js';
import { JsonScanner, type JsonValue } from './json-scanner.js';

export type JsonObject = { readonly [key: string]: JsonValue };

export const configBytesMax = 4 * 1024 * 1024;

/** Throws `model_invalid` when it is no JSON object, too long, too deep or has a key twice. */
export function readConfigJson(bytes: Uint8Array, name: string): JsonObject {
  if (bytes.length > configBytesMax) throw unusableFile(name, `it has ${String(bytes.length)} bytes; at most ${String(configBytesMax)} are sensible`);
  const scanner = new JsonScanner(bytes, (reason) => unusableFile(name, reason), { pythonLiterals: true });
  const value = scanner.value();
  scanner.end();
  if (!isObject(value)) throw unusableFile(name, 'it is no JSON object');
  return value;
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
