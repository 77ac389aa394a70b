/** `npm run -s estimate-table`: twenty public models and what their contexts take, with how each figure was got. `--json`: a line each. */
import { readFileSync } from 'node:fs';
import { packagePath } from '../config/schema-file.js';
import { readConfigJson, isObject, type JsonObject } from '../models/formats/config-json.js';
import { shapeOfConfig } from '../models/estimate/config-shape.js';
import { cacheOf, type CacheFigure } from '../models/estimate/kv-cache.js';
import { defaultOptions } from '../models/estimate/options.js';

export const tableContexts = [4_096, 32_768, 131_072] as const;

export interface TableRow {
  readonly model: string;
  readonly bytesPerToken: number;
  /** Of one context by vLLM, in the order of `tableContexts`. */
  readonly contexts: readonly CacheFigure[];
  readonly how: string;
}

/** From configs that hold the figures which their makers publish. */
export function tableRows(): readonly TableRow[] {
  const path = packagePath('src', 'bench', 'public-models.json');
  return Object.entries(readConfigJson(readFileSync(path), path)).map(([model, config]) => {
    if (!isObject(config)) throw new TypeError(`${model} is no object`);
    const contexts = tableContexts.map((contextTokens) => contextOf(config, contextTokens));
    return { model, bytesPerToken: contexts[0]?.bytesPerToken ?? 0, contexts, how: contexts[0]?.how ?? '' };
  });
}

function contextOf(config: JsonObject, contextTokens: number): CacheFigure {
  return cacheOf(shapeOfConfig(config), { ...defaultOptions, backend: 'vllm', contextTokens, batchTokens: 2_048 }, 'bfloat16');
}

function gibibytes({ bytes, leastBytes }: CacheFigure): string {
  const text = (value: number): string => (value / 2 ** 30).toFixed(2);
  return text(bytes) === text(leastBytes) ? text(bytes) : `${text(leastBytes)}-${text(bytes)}`;
}

export function renderRows(rows: readonly TableRow[]): readonly string[] {
  const heads = ['model', 'B/token', ...tableContexts.map((tokens) => `GiB at ${String(tokens / 1_024)}k`), 'how'];
  const cells = [heads, ...rows.map(({ model, bytesPerToken, contexts, how }) => [model, String(bytesPerToken), ...contexts.map(gibibytes), how])];
  const widths = heads.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells.map((row) => row.map((cell, column) => (column === 0 || column === heads.length - 1 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0))).join('  ').trimEnd());
}

if (process.argv[1]?.endsWith('estimate-table.js') === true) {
  const rows = tableRows();
  const lines = process.argv.includes('--json') ? rows.map((row) => JSON.stringify(row)) : renderRows(rows);
  process.stdout.write(`${lines.join('\n')}\n`);
}
