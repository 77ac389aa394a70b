/** What config.json says of a model, by the rules that every repository in the Transformers layout is held to. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { Dtype } from '../profile/profile.js';

export type Config = Readonly<Record<string, unknown>>;

const shortNames: Readonly<Record<string, string>> = { bf16: 'bfloat16', fp16: 'float16', fp32: 'float32' };
const dtypes = ['bfloat16', 'float16', 'float32'];
const nestedText = 'text_config';

/** R138. */
export function architectureOf(config: Config, repository: string): string {
  const { architectures } = config;
  const [only] = Array.isArray(architectures) ? (architectures as readonly unknown[]) : [];
  if (Array.isArray(architectures) && architectures.length === 1 && typeof only === 'string' && only.trim() !== '') return only.trim();
  throw new LeaseholdError('architecture_undeclared', { repository, found: JSON.stringify(architectures ?? null).slice(0, 120) });
}

/** R139: the language model's own, where a larger model holds it. */
export function contextTokensOf(config: Config, repository: string): number {
  const nested = fields(config[nestedText]);
  const declared = nested['max_position_embeddings'] ?? config['max_position_embeddings'];
  if (typeof declared === 'number' && Number.isSafeInteger(declared) && declared > 0) return declared;
  throw new LeaseholdError('context_undeclared', { repository, found: declared === undefined ? 'max_position_embeddings is not there' : `max_position_embeddings is ${JSON.stringify(declared)}` });
}

/** R140: bfloat16 where nothing is said. `auto` says nothing. */
export function dtypeOf(config: Config, repository: string): Dtype {
  const nested = fields(config[nestedText]);
  const said = [config['dtype'], config['torch_dtype'], nested['dtype'], nested['torch_dtype']].find((each) => each !== undefined && each !== null && each !== 'auto');
  // One type for all parts of a model may be written as a map with an empty key.
  const plain = typeof said === 'object' ? fields(said)[''] ?? said : said;
  if (plain === undefined) return 'bfloat16';
  const name = typeof plain === 'string' ? plain.trim().toLowerCase().replace(/^torch\./, '') : JSON.stringify(plain);
  const full = shortNames[name] ?? name;
  if (dtypes.includes(full)) return full as Dtype;
  throw new LeaseholdError('dtype_unsupported', { repository, dtype: full.slice(0, 60) });
}

/** R144: `none`, or the name of the method, wherever in the configuration it is said. */
export function quantizationOf(config: Config): string {
  const nested = fields(config[nestedText]);
  const said = fields(config['quantization_config'] ?? nested['quantization_config']);
  const method = typeof said['quant_method'] === 'string' ? said['quant_method'].trim().toLowerCase() : '';
  const algorithm = typeof said['quant_algo'] === 'string' ? said['quant_algo'].trim().toLowerCase() : '';
  if (method === 'modelopt' && algorithm === 'nvfp4') return 'modelopt_fp4';
  if (method === 'fp8') return 'fp8';
  const mlx = fields(config['quantization']);
  if (typeof mlx['bits'] === 'number') return `mlx_${typeof mlx['mode'] === 'string' ? mlx['mode'] : 'quantized'}_${String(mlx['bits'])}bit`;
  return method === '' ? 'none' : method;
}

/** Where a configuration names code of the repository's own (`auto_map`), at any depth; null: nowhere. */
export function remoteCodeIn(value: unknown, path = ''): string | null {
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, each] of Object.entries(value)) {
    const here = path === '' ? key : `${path}.${key}`;
    const found = key === 'auto_map' && each !== null ? here : remoteCodeIn(each, here);
    if (found !== null) return found;
  }
  return null;
}

function fields(value: unknown): Config {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value as Config : {};
}
