/** The fixed state that a layer without attention keeps for each sequence, from the fields of its family. */
import type { Fields } from './config-fields.js';
import { UnknownField, type Layer } from './model-shape.js';

type State = Extract<Layer, { readonly kind: 'state' }>;

/** The kinds of state layers that are understood, each known by a field of its own. */
export function stateOf(fields: Fields, hiddenSize: number): State {
  if (fields.has('linear_num_value_heads')) return gatedDelta(fields);
  if (fields.has('mamba_n_heads', 'mamba_num_heads', 'mamba_d_head', 'mamba_head_dim') || fields.text('model_type') === 'mamba2') return mamba2(fields, hiddenSize);
  if (fields.has('mamba_d_state', 'ssm_state_size', 'state_size')) return mamba1(fields, hiddenSize);
  if (fields.has('conv_L_cache')) return { kind: 'state', convolutionElements: fields.count(['conv_L_cache']) * hiddenSize, recurrentElements: 0 };
  if (fields.has('lru_width')) {
    const width = fields.count(['lru_width']);
    return { kind: 'state', convolutionElements: (fields.count(['conv1d_width']) - 1) * width, recurrentElements: width };
  }
  if (fields.has('attn_type_list')) {
    const headSize = fields.count(['head_dim']);
    return { kind: 'state', convolutionElements: 0, recurrentElements: fields.count(['num_attention_heads']) * headSize * headSize };
  }
  throw new UnknownField(fields.named('the size of its state layers'), 'no field of a known family states it');
}

function gatedDelta(fields: Fields): State {
  const keySize = fields.count(['linear_key_head_dim']);
  const valueSize = fields.count(['linear_value_head_dim']);
  const valueHeads = fields.count(['linear_num_value_heads']);
  const mixed = 2 * fields.count(['linear_num_key_heads']) * keySize + valueHeads * valueSize;
  return { kind: 'state', convolutionElements: (fields.count(['linear_conv_kernel_dim']) - 1) * mixed, recurrentElements: valueHeads * keySize * valueSize };
}

function mamba2(fields: Fields, hiddenSize: number): State {
  const size = fields.count(['mamba_d_state', 'ssm_state_size', 'state_size']);
  const heads = fields.optionalCount(['mamba_n_heads', 'mamba_num_heads', 'num_heads']);
  const headSize = fields.optionalCount(['mamba_d_head', 'mamba_head_dim', 'head_dim']);
  const inner = heads !== null && headSize !== null ? heads * headSize : fields.count(['mamba_expand', 'expand']) * hiddenSize;
  const groups = fields.count(['mamba_n_groups', 'mamba_ngroups', 'n_groups']);
  const kernel = fields.count(['mamba_d_conv', 'conv_kernel', 'mamba_conv_kernel']);
  return { kind: 'state', convolutionElements: (kernel - 1) * (inner + 2 * groups * size), recurrentElements: inner * size };
}

function mamba1(fields: Fields, hiddenSize: number): State {
  const inner = fields.optionalCount(['intermediate_size_mamba', 'd_inner']) ?? fields.count(['mamba_expand', 'expand']) * hiddenSize;
  const kernel = fields.count(['mamba_d_conv', 'conv_kernel']);
  return { kind: 'state', convolutionElements: (kernel - 1) * inner, recurrentElements: inner * fields.count(['mamba_d_state', 'ssm_state_size', 'state_size']) };
}
