/** Whether a peer that says whom it was may be that again. Its proof has been checked; this is about the one living process that had the name. */
import { LeaseholdError } from '../../protocol/index.js';
import type { ProcessIdentity } from '../supervisor/types.js';

/** Names of those that are confirmed dead, remembered so long as there are not too many. */
const deadMax = 4_096;

export class Resumes {
  readonly #bootId: string;
  readonly #dead = new Set<string>();

  constructor(bootId: string) {
    this.#bootId = bootId;
  }

  died(generation: string): void {
    this.#dead.add(generation);
    if (this.#dead.size > deadMax) for (const oldest of this.#dead) { this.#dead.delete(oldest); break; }
  }

  /**
   * Throws `resume_refused` unless `peer` may be `generation`: a name of a holder or client that this broker or another
   * gave, that is not known to be dead, and where we know the process that had it, or has it now, that process.
   */
  checkPeer(generation: string, peer: ProcessIdentity, known: { readonly given: number; readonly identity: ProcessIdentity | null }): void {
    const [bootId = '', rest = ''] = generation.split('-');
    if (!rest.startsWith('s')) throw refused(generation, 'it belongs to another process');
    if (this.#dead.has(generation)) throw refused(generation, 'it has ended');
    if (bootId === this.#bootId && Number(rest.slice(1)) > known.given) throw refused(generation, 'it was never given');
    // Everybody whose pid we cannot see has this one.
    if (peer.pid === 0) throw refused(generation, 'its process cannot be seen from here');
    if (known.identity !== null && (known.identity.pid !== peer.pid || known.identity.startTime !== peer.startTime)) throw refused(generation, 'it belongs to another process');
  }

  /** The same for a worker, of which everything is known. Throws `hello_refused` for one that does not say that it is back. */
  checkWorker(resume: string | null, spawn: string, worker: { readonly generation: string; readonly wasAttached: boolean; readonly isEnding: boolean } | null): void {
    const name = resume ?? spawn;
    if (worker === null) {
      if (resume === null) throw new LeaseholdError('hello_refused', { role: 'worker' });
      throw refused(name, 'it has ended, or was never started here');
    }
    if (resume !== null && resume !== worker.generation) throw refused(name, 'it belongs to another process');
    if (resume === null && worker.wasAttached) throw new LeaseholdError('hello_refused', { role: 'worker' });
    if (worker.isEnding) throw refused(name, 'it is being ended');
  }
}

function refused(generation: string, reason: string): LeaseholdError {
  return new LeaseholdError('resume_refused', { generation, reason });
}
