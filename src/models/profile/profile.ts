/** A profile: everything that defines how a model runs, immutable, named by the digest of its fields. Fields are named as they are stored. */
import type { Backend, Modality, ReasoningParser, Scalar } from '../policy/policy.js';

export type Dtype = 'bfloat16' | 'float16' | 'float32';

/** `modal` is the sources' name for a machine with a card. */
export type ExecutionTarget = 'modal' | 'local_apple';

/** Profile schema 2. */
export interface Profile {
  /** `hf-` and the digest where generated; a name where curated. */
  readonly id: string;
  readonly display_name: string;
  readonly repository: string;
  /** 40 lower-case hex digits. */
  readonly revision: string;
  readonly dtype: Dtype;
  readonly modalities: readonly Modality[];
  /** GiB, to one decimal: the policy's rule of thumb. What a lease is asked for comes from the estimate. */
  readonly estimated_vram_gb: number;
  readonly max_context_tokens: number;
  readonly max_images: number;
  readonly max_video_frames: number;
  readonly max_file_bytes: number;
  readonly max_file_characters: number;
  readonly allow_mixed_image_video: boolean;
  readonly trust_remote_code: boolean;
  readonly schema_version: number;
  readonly source: 'curated' | 'generated';
  /** 64 lower-case hex digits; empty where curated. */
  readonly profile_digest: string;
  readonly compatibility_policy_version: number;
  readonly backend: Backend | 'mlx_vlm';
  readonly architecture: string;
  readonly quantization_method: string;
  readonly artifact_bytes: number;
  readonly advertised_context_tokens: number;
  /** Empty: by architecture. */
  readonly reasoning_parser: ReasoningParser | '';
  readonly backend_options: Readonly<Record<string, Scalar>>;
  /** In the order in which they are installed. */
  readonly runtime_requirements: readonly string[];
  readonly execution_target: ExecutionTarget;
  /** The files that are loaded, where the repository has others too: the GGUFs chosen. Empty: what its index or its one safetensors file says. */
  readonly weight_files: readonly string[];
  /** What sees images or hears sound beside a GGUF, a file of its own. Empty: none, or it was left out. */
  readonly projector_file: string;
}

/** What is stored for a generated profile, beside the profile; sealed as a whole. */
export interface ProfileManifest {
  readonly schema_version: number;
  readonly compatibility_policy_version: number;
  readonly requested_reference: string;
  readonly resolved_at_unix: number;
  /** False: the hub had not finished its scan when the model was resolved. */
  readonly security_scan_complete: boolean;
  readonly profile: Profile;
}

export const generatedIdShape = /^hf-[0-9a-f]{64}$/;
