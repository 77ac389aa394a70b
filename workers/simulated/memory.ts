/** Bytes of the machine's memory: on a simulated one through the broker, on a real one in truth, nowhere where it is not leased. */
import type { CardAllocation, EngineContext } from '../runtime/engine.js';

/** Resolves to null where nothing is taken. Rejects with `out_of_memory` on a simulated one. */
export async function takeMemory(context: EngineContext | null, bytes: number): Promise<CardAllocation | null> {
  const memory = context?.memory;
  if (context === null || memory === undefined || bytes <= 0) return null;
  return memory.simulated ? context.allocator.allocate(memory.device, bytes) : realMemory(bytes);
}

const pageBytes = 4_096;

/** Touched, page by page: what was only asked for is nobody's. Given back when the collector has seen that nobody has it any more. */
function realMemory(bytes: number): CardAllocation {
  let held: Buffer | null = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; at += pageBytes) held[at] = 1;
  return {
    bytes,
    free: async () => {
      held = null;
      // The next big one may be long in coming.
      await Promise.resolve(held);
    },
  };
}
