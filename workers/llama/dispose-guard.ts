/**
 * In node-llama-cpp 3.21.1 whatever is created on a model (or on llama.cpp) holds it back from being disposed, and a
 * creation that fails or is aborted keeps holding: disposing then waits for ever. Here such a hold is let go.
 */

interface Hold {
  dispose(): void;
}
interface Guard {
  createPreventDisposalHandle: (...args: unknown[]) => Hold;
}

/** Those that want to know what is taken on a guard; what two at once see is in both lists. */
const watchers = new WeakMap<Guard, Set<Hold[]>>();

/**
 * Runs `create`; when it fails, lets go of what was taken on `owner` meanwhile. Letting go twice does nothing, and what
 * another creation took at the same time is only let go early: its model is disposed by us alone, after its contexts.
 */
export async function createOn<T>(owner: object, create: () => Promise<T>): Promise<T> {
  const guard = guardOf(owner);
  if (guard === null) return create();
  const watching = watchersOf(guard);
  const holds: Hold[] = [];
  watching.add(holds);
  try {
    return await create();
  } catch (error) {
    for (const hold of holds) hold.dispose();
    throw error;
  } finally {
    watching.delete(holds);
  }
}

function watchersOf(guard: Guard): Set<Hold[]> {
  const known = watchers.get(guard);
  if (known !== undefined) return known;
  const watching = new Set<Hold[]>();
  watchers.set(guard, watching);
  const take = guard.createPreventDisposalHandle;
  guard.createPreventDisposalHandle = (...args) => {
    const hold = take.apply(guard, args);
    for (const holds of watching) holds.push(hold);
    return hold;
  };
  return watching;
}

/** Null in a version that is built otherwise: then there is nothing to let go of here. */
function guardOf(owner: object): Guard | null {
  const { _backendModelDisposeGuard, _backendDisposeGuard } = owner as { readonly _backendModelDisposeGuard?: Partial<Guard>; readonly _backendDisposeGuard?: Partial<Guard> };
  const guard = _backendModelDisposeGuard ?? _backendDisposeGuard;
  return typeof guard?.createPreventDisposalHandle === 'function' ? guard as Guard : null;
}
