/** What of the machine's memory is left to everything else by default. */

const gibibyte = 1_024 ** 3;

/**
 * A tenth, at least 1 GiB, at most half. The tenth is for what no ledger sees coming: the kernel's own needs, the page
 * cache that loads live on, other programs' peaks; 1 GiB is what a small machine's system takes; and a container of a
 * few hundred MiB must be able to lease something.
 */
export function defaultHostReserveBytes(totalBytes: number): number {
  return Math.min(Math.floor(totalBytes / 2), Math.max(gibibyte, Math.floor(totalBytes / 10)));
}
