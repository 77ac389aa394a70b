/** From what an inspection found and a row of the policy to a profile. */
import { bytesOfGib, type Policy, type PolicyRow, type Scalar } from '../policy/policy.js';
import { digestOf, roundToTenth } from './canonical.js';
import type { Dtype, Profile } from './profile.js';

export interface ProfileFacts {
  readonly repository: string;
  /** 40 lower-case hex digits. */
  readonly commit: string;
  readonly architecture: string;
  /** `none`, or the name of the method. */
  readonly quantization: string;
  readonly dtype: Dtype;
  readonly artifactBytes: number;
  readonly advertisedContextTokens: number;
  /** Files chosen among others; empty where there was nothing to choose. */
  readonly weightFiles: readonly string[];
  /** Empty: none. */
  readonly projectorFile: string;
}

/** The profile of a model under a policy. The same facts give the same id, everywhere. */
export function generateProfile(facts: ProfileFacts, row: PolicyRow, policy: Policy): Profile {
  const contextTokens = Math.min(facts.advertisedContextTokens, policy.defaultContextTokens);
  const fields = {
    id: '', profile_digest: '',
    display_name: facts.repository.split('/').at(-1) ?? facts.repository,
    repository: facts.repository,
    revision: facts.commit,
    dtype: facts.dtype,
    modalities: row.modalities,
    estimated_vram_gb: estimatedGib(facts, row, policy),
    max_context_tokens: contextTokens,
    ...policy.limits,
    schema_version: 2,
    source: 'generated',
    compatibility_policy_version: policy.version,
    backend: row.backend,
    architecture: facts.architecture,
    quantization_method: facts.quantization,
    artifact_bytes: facts.artifactBytes,
    advertised_context_tokens: facts.advertisedContextTokens,
    reasoning_parser: row.reasoningParser,
    backend_options: Object.fromEntries(Object.entries(row.options).map(([name, value]) => [name, filled(value, contextTokens, facts.quantization)])),
    runtime_requirements: row.requirements.map((name) => policy.packages[name] ?? name),
    execution_target: 'modal',
    weight_files: facts.weightFiles,
    projector_file: facts.projectorFile,
  } satisfies Profile;
  const digest = digestOf(fields, policy);
  return { ...fields, id: `hf-${digest}`, profile_digest: digest };
}

function estimatedGib({ artifactBytes, quantization }: ProfileFacts, { backend }: PolicyRow, { estimate }: Policy): number {
  const factor = quantization === 'none' ? estimate.factorPlain : estimate.factorQuantized;
  return roundToTenth(artifactBytes / bytesOfGib * factor + estimate.overheadGib[backend]);
}

function filled(value: Scalar, contextTokens: number, quantization: string): Scalar {
  if (value === '$context') return contextTokens;
  if (value === '$quantization') return quantization === 'none' ? '' : quantization;
  return value;
}
