/** Scripted faults: they strike where the script says, as often as it says. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Fault, FaultPoint } from './script.js';

export class Faults {
  readonly #faults: readonly Fault[];
  readonly #struck = new Map<Fault, number>();

  constructor(faults: readonly Fault[]) {
    this.#faults = faults;
  }

  /** Strikes what is due at `at` once `done` (a fraction of a load, or tokens of a generation) has been reached. */
  async strike(at: FaultPoint, done = 0, device = ''): Promise<void> {
    for (const fault of this.#faults) {
      const due = fault.at === at && done >= (fault.afterFraction ?? fault.afterTokens ?? 0);
      const struck = this.#struck.get(fault) ?? 0;
      if (!due || struck >= (fault.times ?? Infinity)) continue;
      this.#struck.set(fault, struck + 1);
      await carryOut(fault, device);
    }
  }
}

async function carryOut(fault: Fault, device: string): Promise<void> {
  switch (fault.how) {
    case 'throw':
      throw new Error(fault.message ?? `scripted failure at ${fault.at}`);
    case 'oom':
      throw new LeaseholdError('out_of_memory', { device, wantedBytes: 1, freeBytes: 0 });
    case 'hang':
      await new Promise<never>(() => undefined);
      return;
    case 'busy':
      for (;;);
    case 'stop':
      process.kill(process.pid, 'SIGSTOP');
      return;
    case 'exit':
      process.exit(fault.exitCode ?? 3);
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      return;
    case 'abort':
      process.abort();
    case 'uncaught':
      setImmediate(() => { throw new Error(fault.message ?? `scripted uncaught exception at ${fault.at}`); });
      await new Promise<never>(() => undefined);
  }
}
