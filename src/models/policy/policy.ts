/** Which architectures run on which backend, and how: reviewed rows in policy.json, one version of which is in force. */
import { readFileSync } from 'node:fs';
import { LeaseholdError } from '../../../protocol/index.js';
import { packagePath } from '../../config/schema-file.js';

export type Backend = 'transformers' | 'vllm' | 'llama_cpp';
export type Modality = 'text' | 'image' | 'video' | 'file';
export type ReasoningParser = 'none' | 'qwen3';
export type Scalar = string | number | boolean;

/** One reviewed row: an architecture on one backend. */
export interface PolicyRow {
  readonly backend: Backend;
  readonly modalities: readonly Modality[];
  readonly reasoningParser: ReasoningParser;
  /** `$context` and `$quantization` stand for the model's own. */
  readonly options: Readonly<Record<string, Scalar>>;
  /** Names of `packages`, in the order in which they are installed. */
  readonly requirements: readonly string[];
}

interface FamilyBackend {
  readonly backend: Backend;
  readonly quantizations: readonly string[];
  readonly options: Readonly<Record<string, Scalar>>;
  readonly requirements: readonly string[];
}

interface Family {
  readonly architectures: readonly string[];
  readonly modalities: readonly Modality[];
  readonly reasoningParser: ReasoningParser;
  /** The first that takes the model is chosen where nobody names one. */
  readonly backends: readonly FamilyBackend[];
}

/** Limits of a generated profile. They are constants of the policy, so its version stands for them in a digest. */
export interface PolicyLimits {
  readonly max_images: number;
  readonly max_video_frames: number;
  readonly max_file_bytes: number;
  readonly max_file_characters: number;
  readonly allow_mixed_image_video: boolean;
  readonly trust_remote_code: false;
}

export interface Policy {
  /** Goes up with every change that makes another profile of what had one; a row for what was refused until then does not. */
  readonly version: number;
  readonly packages: Readonly<Record<string, string>>;
  readonly defaultContextTokens: number;
  readonly estimate: { readonly factorPlain: number; readonly factorQuantized: number; readonly overheadGib: Readonly<Record<Backend, number>> };
  readonly limits: PolicyLimits;
  readonly families: readonly Family[];
  readonly gguf: PolicyRow;
}

/** Where the policy lies: its bytes are part of what a runtime is. */
export const policyPath = packagePath('src', 'models', 'policy', 'policy.json');

let loaded: Policy | null = null;

/** The policy in force: the file that ships, read once. */
export function currentPolicy(): Policy {
  loaded ??= JSON.parse(readFileSync(policyPath, 'utf8')) as Policy;
  return loaded;
}

export const bytesOfGib = 1024 ** 3;

export interface RowRequest {
  readonly repository: string;
  readonly architecture: string;
  readonly quantization: string;
  /** Null: the first that the policy lists. */
  readonly backend: Backend | null;
}

/** The row for a model in the Transformers layout. Throws `architecture_unsupported` or `quantization_unsupported`, naming what was asked and the version. */
export function rowFor(policy: Policy, { repository, architecture, quantization, backend }: RowRequest): PolicyRow {
  const family = policy.families.find(({ architectures }) => architectures.includes(architecture));
  const rows = family?.backends.filter((row) => backend === null || row.backend === backend) ?? [];
  if (family === undefined || rows.length === 0) {
    const asked = family === undefined ? architecture : `${architecture} on ${String(backend)}`;
    throw new LeaseholdError('architecture_unsupported', { repository, architecture: asked, policyVersion: policy.version, known: policy.families.flatMap(({ architectures }) => architectures).join(', ') });
  }
  const row = rows.find(({ quantizations }) => quantizations.includes(quantization));
  if (row === undefined) {
    const known = [...new Set(rows.flatMap(({ quantizations }) => quantizations))].join(', ');
    throw new LeaseholdError('quantization_unsupported', { repository, architecture, quantization, policyVersion: policy.version, known });
  }
  return { backend: row.backend, modalities: family.modalities, reasoningParser: family.reasoningParser, options: row.options, requirements: row.requirements };
}
