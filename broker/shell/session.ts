/** One accepted peer of the control plane: who it is and the commands it has been given. */
import type { Channel } from '../../protocol/node/index.js';
import type { ProcessIdentity } from '../supervisor/types.js';
import type { Subscription } from './subscription.js';

export interface Session {
  readonly generation: string;
  readonly role: 'worker' | 'holder' | 'client';
  readonly name: string;
  /** As the system says where it can, else as the peer said in hello. */
  readonly identity: ProcessIdentity;
  readonly channel: Channel<'control'>;
  /** The core's commands that are open here → the wire id each travels under. */
  readonly commands: Map<number, number>;
  subscription: Subscription | null;
  /** The number of its last announcement (`newModels`). */
  announcedSeq: number;
}

/** Living sessions by generation. */
export class Sessions {
  readonly #byGeneration = new Map<string, Session>();
  #peers = 0;

  add(session: Session): void {
    this.#byGeneration.set(session.generation, session);
    if (session.role !== 'worker') this.#peers += 1;
  }

  get(generation: string): Session | undefined {
    return this.#byGeneration.get(generation);
  }

  /** Idempotent. */
  delete(generation: string): void {
    const session = this.#byGeneration.get(generation);
    if (session === undefined) return;
    this.#byGeneration.delete(generation);
    if (session.role !== 'worker') this.#peers -= 1;
  }

  /** Holders and clients. */
  get peers(): number {
    return this.#peers;
  }

  /** Holders and clients of one process. */
  peersOf(pid: number): number {
    let count = 0;
    for (const { role, identity } of this.#byGeneration.values()) if (role !== 'worker' && identity.pid === pid) count += 1;
    return count;
  }

  [Symbol.iterator](): IterableIterator<Session> {
    return this.#byGeneration.values();
  }
}
