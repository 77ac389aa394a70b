/** Keys, proofs and tickets (D8). Every comparison takes the same time whatever differs. */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { roleText, spawnText, ticketPattern, ticketText, type TicketClaims } from '../authenticate.js';
import { LeaseholdError } from '../errors.js';

const keyPattern = /^[0-9a-f]{64}$/;

/** A new secret for a state folder: 32 random bytes as 64 hex digits. */
export function createSecret(): string {
  return randomBytes(32).toString('hex');
}

/** A worker's key, which is also its proof: HMAC(secret, "spawn:<spawn id>"). */
export function spawnKey(secret: string, spawnId: string): string {
  return hmac(secret, spawnText(spawnId));
}

/** A holder's or client's proof: HMAC(secret, "role:<role>"). */
export function roleProof(secret: string, role: 'holder' | 'client'): string {
  return hmac(secret, roleText(role));
}

/** The proof that a hello must carry. A worker without a spawn id has none: `hello_refused`. */
export function expectedProof(secret: string, hello: { readonly role: 'worker' | 'holder' | 'client'; readonly spawn: string | null }): string {
  if (hello.role !== 'worker') return roleProof(secret, hello.role);
  if (hello.spawn === null) throw new LeaseholdError('hello_refused', { role: hello.role });
  return spawnKey(secret, hello.spawn);
}

/** Throws `hello_refused` unless the hello's proof is the one that `secret` makes. */
export function verifyHello(
  secret: string,
  hello: { readonly role: 'worker' | 'holder' | 'client'; readonly spawn: string | null; readonly proof: string },
): void {
  if (!sameText(expectedProof(secret, hello), hello.proof)) throw new LeaseholdError('hello_refused', { role: hello.role });
}

/** A ticket for `claims` under the worker's key. */
export function createTicket(key: string, claims: TicketClaims): string {
  return `${String(claims.expiresUs)}.${hmac(key, ticketText(claims))}`;
}

/** Throws `ticket_refused` unless the ticket was made under `key` for this caller and generation and has not expired. */
export function verifyTicket(
  key: string,
  ticket: string,
  expected: { readonly caller: string; readonly generation: string; readonly nowUs: number },
): void {
  const parts = ticketPattern.exec(ticket);
  const expiresUs = Number(parts?.[1]);
  const signature = parts?.[2];
  if (signature === undefined || !Number.isSafeInteger(expiresUs)) throw refused('malformed');
  const { caller, generation } = expected;
  if (!sameText(hmac(key, ticketText({ caller, generation, expiresUs })), signature)) {
    throw refused('not for this caller and worker');
  }
  if (expected.nowUs >= expiresUs) throw refused('expired');
}

function hmac(key: string, text: string): string {
  if (!keyPattern.test(key)) throw new LeaseholdError('input_invalid', { field: 'key', reason: 'it must have 64 lower-case hex digits' });
  return createHmac('sha256', Buffer.from(key, 'hex')).update(text, 'utf8').digest('hex');
}

/** Equal length is no secret: every proof has 64 digits. */
function sameText(expected: string, given: string): boolean {
  const left = Buffer.from(expected, 'utf8');
  const right = Buffer.from(given, 'utf8');
  return left.length === right.length && timingSafeEqual(left, right);
}

function refused(reason: string): LeaseholdError {
  return new LeaseholdError('ticket_refused', { reason });
}
