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

  add(session: Session): void {
    this.#byGeneration.set(session.generation, session);
  }

  get(generation: string): Session | undefined {
    return this.#byGeneration.get(generation);
  }

  delete(generation: string): void {
    this.#byGeneration.delete(generation);
  }

  get count(): number {
    return this.#byGeneration.size;
  }

  [Symbol.iterator](): IterableIterator<Session> {
    return this.#byGeneration.values();
  }
}
