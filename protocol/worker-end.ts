/** How a worker that ends by itself says why: by its exit code, and before it is ready by a line on stderr as well. */

/** A broker acts on `engineHung` alone; the others are for people, who find them in logs and obituaries. */
export const workerExitCodes = {
  /** Told to end, by `shutdown` or SIGTERM, and done with everything. */
  ended: 0,
  /** The broker is gone, and the grace is over. */
  brokerLost: 69,
  /** The start failed, or something went wrong that nothing caught. */
  failed: 70,
  /** The engine did not end what it was told to end, or a move: only the end of the process frees what it holds. */
  engineHung: 71,
  /** Not everything could be unloaded within the grace. */
  gracePassed: 75,
} as const;

/** Begins the line on stderr by which a worker says of which error it ends; then JSON, `{code, details}`. */
export const errorEnd = 'leasehold-error ';
