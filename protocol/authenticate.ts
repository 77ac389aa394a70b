/**
 * What is signed when a peer proves itself: pure texts, so that any language
 * can make them. The signing is HMAC-SHA256, written as 64 hex digits; keys
 * are written as 64 hex digits too and used as the 32 bytes they stand for.
 */

/** Text under the state folder's secret whose HMAC is a worker's key (and its proof). */
export function spawnText(spawnId: string): string {
  return `spawn:${spawnId}`;
}

/** Text under the state folder's secret whose HMAC is a holder's or client's proof. */
export function roleText(role: 'holder' | 'client'): string {
  return `role:${role}`;
}

/** What a ticket promises: this caller may call this generation until then. */
export interface TicketClaims {
  /** The caller's name, as it will say in `open`: its own generation, from `welcome`. */
  readonly caller: string;
  /** The worker's generation. */
  readonly generation: string;
  /** CLOCK_MONOTONIC, microseconds. */
  readonly expiresUs: number;
}

/** Text under the spawn key whose HMAC closes a ticket. The caller comes last: it alone may hold any character. */
export function ticketText(claims: TicketClaims): string {
  return `ticket:${claims.generation}:${String(claims.expiresUs)}:${claims.caller}`;
}

/** A ticket: `<expiresUs>.<64 hex digits>`. Caller and generation are not in it: both ends know them. */
export const ticketPattern = /^(\d{1,16})\.([0-9a-f]{64})$/;
