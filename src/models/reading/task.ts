/** What goes into a thread and comes back. */
import type { MessagePort } from 'node:worker_threads';

export const formats = ['gguf', 'safetensors', 'safetensors names', 'index', 'index names', 'config', 'code names'] as const;
export type Format = (typeof formats)[number];

/** The thread asks for ranges through `port`: the source stays where its socket or file is. */
export interface ReadTask {
  readonly format: Format;
  readonly name: string;
  readonly sizeBytes: number;
  readonly port: MessagePort;
  /** Of `index names`: of which files. */
  readonly wanted: readonly string[];
}

export interface RangeRequest {
  readonly id: number;
  readonly offset: number;
  readonly length: number;
}

/** `reason` null: the caller knows why, and the thread only needs to stop. */
export type RangeAnswer = { readonly id: number; readonly bytes: Uint8Array } | { readonly id: number; readonly failed: true };

/** An error of ours crosses between threads as its parts. */
export type ReadOutcome = { readonly value: unknown } | { readonly unusable: { readonly source: string; readonly reason: string } };
