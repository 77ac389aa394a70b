/** Kills random parts under load, one after another; after each it waits for rest and counts everything anew. */
import { LeaseholdError } from '../../protocol/index.js';
import { Prng } from '../../src/scenarios/world/prng.js';
import { Ground, answers, parts, type Part } from './ground.js';

export interface KillReport {
  readonly seed: number;
  readonly kills: Readonly<Record<Part, number>>;
  readonly total: number;
  readonly calls: number;
  /** Answers that were right; there is no other kind. */
  readonly answered: number;
  /** Calls that ended in an error, by its code. */
  readonly told: Readonly<Record<string, number>>;
  readonly brokers: number;
}

export interface KillOptions {
  readonly kills: number;
  readonly seed: number;
  /** Called after each kill, once all is at rest. */
  readonly onKill?: (done: number) => void;
}

/** A part dies under a call: what the caller may be told. Anything else is a fault. */
const allowed: ReadonlySet<string> = new Set(['worker_exited', 'backing_off', 'connection_lost', 'broker_lost', 'generation_stale', 'load_failed', 'spawn_failed']);
const callsAtOnce = 4;

/** Rejects at the first answer that is wrong, error that is not allowed, or ledger that is not what is there. */
export async function runKills({ kills, seed, onKill }: KillOptions): Promise<KillReport> {
  const random = new Prng(seed);
  const ground = await Ground.open();
  const count: Record<Part, number> = { broker: 0, worker: 0, holder: 0, client: 0 };
  const told: Record<string, number> = {};
  let calls = 0;
  let answered = 0;
  const ask = async (model: string): Promise<void> => {
    calls += 1;
    try {
      const { text } = await ground.client.generate(model, 'hello').result();
      if (text !== answers[model]) throw new Error(`${model} answered ${JSON.stringify(text)}`);
      answered += 1;
    } catch (error) {
      if (!(error instanceof LeaseholdError) || !allowed.has(error.code)) throw error;
      told[error.code] = (told[error.code] ?? 0) + 1;
    }
  };
  const names = Object.keys(answers);
  const name = (): string => names[random.int(0, names.length - 1)] ?? '';
  for (let done = 0; done < kills;) {
    const part = parts[random.int(0, parts.length - 1)] ?? 'worker';
    const asked = Array.from({ length: callsAtOnce }, () => ask(name()));
    // A part may die before its caller is waited for.
    const all = Promise.all(asked);
    all.catch(() => undefined);
    ground.askElsewhere(name());
    for (let turns = random.int(0, 40); turns > 0; turns--) await new Promise((resolve) => setTimeout(resolve, 1));
    if (await ground.kill(part, (length) => random.int(0, Math.max(0, length - 1)))) {
      count[part] += 1;
      done += 1;
    }
    await all;
    try {
      await ground.atRest();
    } catch (error) {
      throw new Error(`seed ${String(seed)}, kill ${String(done)} (${part}): ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
    onKill?.(done);
  }
  await ground.close();
  return { seed, kills: count, total: kills, calls, answered, told, brokers: ground.boots.length };
}
