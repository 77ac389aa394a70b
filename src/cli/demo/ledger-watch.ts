/** Follows the broker's events and reads the ledger after each, never twice at once. */
import type { LeaseholdEvent, LedgerState, Orchestrator } from '../../orchestrator/types.js';

/** Calls `onEvent` for every event and `onLedger` with what the ledger shows after it, until the orchestrator closes. */
export async function watchLedger(
  orchestrator: Orchestrator, onEvent: (event: LeaseholdEvent) => void, onLedger: (state: LedgerState) => void,
): Promise<void> {
  let reading: Promise<void> | null = null;
  let changed = false;
  const read = async (): Promise<void> => {
    while (changed) {
      changed = false;
      onLedger(await orchestrator.ledger());
    }
    reading = null;
  };
  for await (const event of orchestrator.events()) {
    onEvent(event);
    changed = true;
    reading ??= read();
  }
  await reading;
}
