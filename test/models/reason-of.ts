import { LeaseholdError } from '../../protocol/index.js';

/** The reason that `work` is refused with; null when it is not. Anything but `model_invalid` fails the test. */
export async function reasonOf(work: () => unknown): Promise<string | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (error instanceof LeaseholdError && error.code === 'model_invalid') return error.details['reason'] ?? null;
    throw error;
  }
}
