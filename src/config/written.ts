/** The shape of leasehold.yaml once it has passed the schema. */
import type { ClassPolicy, LimitName, RequestClass } from '../../protocol/index.js';

export const logLevels = ['silent', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof logLevels)[number];

export type Size = number | string;
export type Duration = number | string;
export type Scalar = string | number | boolean;

export interface WrittenModel {
  readonly source: string;
  readonly engine?: string;
  readonly context?: number | string;
  readonly parallel?: number;
  readonly ttl?: Duration | null;
  readonly preload?: boolean;
  readonly pin?: boolean;
  readonly exclusive?: boolean;
  readonly device?: string | null;
  readonly cards?: number;
  readonly devices?: readonly string[] | null;
  readonly class?: RequestClass;
  readonly aliases?: readonly string[];
  readonly declaredBytes?: Size;
  readonly embedding?: boolean;
  readonly offload?: { readonly minGpuLayers: number } | null;
  readonly options?: Readonly<Record<string, Scalar>>;
}

export interface WrittenWorker {
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, Scalar>>;
  readonly modelsPerWorker?: number;
  readonly floor?: Size;
  readonly cpuFallback?: 'allow' | 'refuse';
}

/** `off`, `auto` or a size. */
export type WrittenYield = Size;

/** What the schema lets through: of one source, anything may be left out. */
export interface Written {
  readonly devices?: string | readonly string[];
  readonly reserve?: Size | Readonly<Record<string, Size>>;
  readonly yield?: WrittenYield | Readonly<Record<string, WrittenYield>>;
  readonly state?: string;
  readonly broker?: 'auto' | 'own' | 'attach';
  readonly allowLedgerOnly?: boolean;
  readonly hostMemory?: { readonly lease?: string; readonly reserve?: Size; readonly allowUnknown?: boolean } | null;
  readonly models?: Readonly<Record<string, WrittenModel>> | null;
  readonly workers?: Readonly<Record<string, WrittenWorker>> | null;
  readonly limits?: (Readonly<Partial<Record<LimitName, number | string>>> & { readonly classes?: Readonly<Partial<Record<RequestClass, Partial<ClassPolicy>>>> | null }) | null;
  readonly log?: { readonly level?: LogLevel; readonly file?: string | null } | null;
}
