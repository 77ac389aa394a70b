/** Deadlines that do not blame others for our own lateness. */

/**
 * Calls `expired` when `afterMs` have passed and the event loop has then polled its sockets once more: an answer that
 * lay in the pipe while our own loop was blocked is read first. Returns the way to call it off.
 */
export function startDeadline(afterMs: number, expired: () => void): () => void {
  let immediate: NodeJS.Immediate | null = null;
  const timer = setTimeout(() => {
    immediate = setImmediate(expired);
  }, afterMs);
  return () => {
    clearTimeout(timer);
    if (immediate !== null) clearImmediate(immediate);
  };
}

/** What `promise` resolves to, or null when it has not within `timeoutMs`. The promise itself goes on. */
export async function within<T>(timeoutMs: number, promise: Promise<T>): Promise<T | null> {
  let cancel = (): void => undefined;
  const late = new Promise<null>((resolve) => {
    cancel = startDeadline(timeoutMs, () => resolve(null));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    cancel();
  }
}
