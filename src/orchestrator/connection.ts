/** How an orchestrator comes to a broker: one of its own in this process, or one that runs already. */
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError, classPolicies, type ClassPolicy, type Limits, type RequestClass } from '../../protocol/index.js';
import { connect, type ByteStream } from '../../protocol/node/index.js';
import { createBroker, defaultStatePath, effectiveLimits, livingWorkers, readStateFolder, silentLog, type Broker, type BrokerOptions, type Log, type OwnedCard } from '../../broker/shell/index.js';
import { SimulatedCard } from '../../broker/devices/index.js';
import { discoverCards } from './discover.js';
import { engineCommands } from './engines.js';
import { ownHostMemory } from './host-memory.js';
import type { OrchestratorOptions } from './options.js';

/** A broker within reach. `dial` opens one more connection to it: client and holder sessions each have their own. */
export interface Reach {
  readonly owned: Broker | null;
  readonly socketPath: string;
  readonly secret: string;
  /** The broker's own where it is ours; else as this process has them. */
  readonly limits: Limits;
  /** True while it is our own and has not ended; of another's nothing is known but by asking. */
  alive(): boolean;
  dial(): Promise<ByteStream>;
}

/** Calls of other programs have so long to end when the owner of their broker closes; its own have ended by then. */
const shutdownDrainMs = 10_000;
const connectTimeoutMs = 5_000;
/** Who has the lock may still be finding its cards; it is asked again until then. */
const othersStartMs = 30_000;
const othersStartPauseMs = 50;
/** Workers of a broker that is gone end by themselves after its grace (30 s for `leasehold up`), and then are given this long in all. */
const orphansMs = 40_000;
const orphansPauseMs = 200;

/** A simulated card as who plays with it sees it: strangers come and go there by his hand. */
export type SimulatedCardInHand = Pick<SimulatedCard, 'description' | 'usedBytes' | 'setForeign' | 'setFault'>;

export interface Owning {
  readonly expectedWorkers: number;
  /** Shown with the ledger of an owned broker. */
  readonly facts: () => Readonly<Record<string, unknown>>;
  readonly names: NonNullable<BrokerOptions['names']>;
  /** Called with the simulated cards of an owned broker before it starts. */
  readonly onSimulatedCards?: ((cards: readonly SimulatedCardInHand[]) => void) | undefined;
  /** Called before one is made; throws why it may not be. */
  readonly beforeOwning: () => void;
}

/** See `OrchestratorOptions.broker` for what each mode promises. */
export async function reachBroker(options: OrchestratorOptions, owning: Owning): Promise<Reach> {
  const mode = options.broker ?? 'auto';
  const path = options.stateFolder ?? defaultStatePath();
  const limits = effectiveLimits(options.limits ?? {});
  const giveUpMs = performance.now() + othersStartMs;
  // A broker that leaves no worker behind would end, with itself, those that it takes over (ADR 0017).
  const orphans = mode === 'auto' && limits.reattachGraceMs === 0 ? new Orphans(path, options) : null;
  for (;;) {
    const running = mode === 'own' ? null : await attach(path, limits);
    if (running !== null) return running;
    if (mode === 'attach') throw new LeaseholdError('broker_missing', { reason: `none answers in ${path}` });
    if (orphans?.live() === true) {
      await pause(orphansPauseMs);
      continue;
    }
    try {
      return await own(options, path, owning);
    } catch (error) {
      // Of two that start at once one owns, and the other attaches to it as soon as it answers.
      if (mode === 'own' || !isStateLocked(error, path) || performance.now() > giveUpMs) throw error;
    }
    await pause(othersStartPauseMs);
  }
}

/** Workers of an earlier broker that seek the next: another's to take over, so that broker is waited for, or their end. */
class Orphans {
  readonly #path: string;
  readonly #options: OrchestratorOptions;
  #giveUpMs: number | null = null;

  constructor(path: string, options: OrchestratorOptions) {
    this.#path = path;
    this.#options = options;
  }

  /** Throws `broker_lost` when they have been waited for long enough. */
  live(): boolean {
    const pids = livingWorkers(this.#path).map(({ pid }) => pid);
    if (pids.length === 0) return false;
    if (this.#giveUpMs === null) {
      this.#giveUpMs = performance.now() + orphansMs;
      this.#options.log?.warn({ pids: pids.join(', ') }, 'workers of a broker that is gone live on: the next broker is waited for, or their end');
      this.#options.onBrokerLost?.({ pid: null, graceMs: orphansMs, stopped: false });
    }
    if (performance.now() < this.#giveUpMs) return true;
    const reason = `none answers in ${this.#path}, and workers of an earlier one live on (pid ${pids.join(', ')}); one that ends when this process does may not take them over`;
    throw new LeaseholdError('broker_lost', { reason }, { help: 'Start a broker that stays, with `leasehold up`: it takes them over.' });
  }
}

/** Another broker has this very folder. One that has only a card of ours never answers here. */
function isStateLocked(error: unknown, path: string): boolean {
  const { code, details } = LeaseholdError.from(error);
  return code === 'broker_running' && details['path'] === join(path, 'broker.lock');
}

async function attach(path: string, limits: Limits): Promise<Reach | null> {
  const state = readStateFolder(path);
  if (state === null) return null;
  const dial = (): Promise<ByteStream> => connect({ path: state.socketPath, timeoutMs: connectTimeoutMs });
  try {
    (await dial()).destroy();
  } catch (error) {
    const { details } = LeaseholdError.from(error);
    if (details['reason'] === 'ECONNREFUSED' || details['reason'] === 'ENOENT') return null;
    throw error;
  }
  return { owned: null, socketPath: state.socketPath, secret: state.secret, limits, alive: () => false, dial };
}

async function own(options: OrchestratorOptions, path: string, { expectedWorkers, facts, names, onSimulatedCards, beforeOwning }: Owning): Promise<Reach> {
  beforeOwning();
  const log = options.log ?? silentLog;
  const broker = await createBroker({
    stateFolder: path,
    engines: engineCommands(options.engines ?? []),
    discover: async (stateId) => {
      const cards = await discoverAll(options, stateId, log);
      onSimulatedCards?.(cards.flatMap(({ reader }) => (reader instanceof SimulatedCard ? [reader] : [])));
      return cards;
    },
    limits: { shutdownDrainMs, ...options.limits },
    classPolicies: completePolicies(options.classPolicies ?? {}),
    allowLedgerOnly: options.allowLedgerOnly ?? false,
    allowHostUnknown: options.hostMemory?.allowUnknown ?? false,
    expectedWorkers,
    facts,
    names,
    log,
  });
  let ended = false;
  void broker.ended.then(() => { ended = true; });
  const { socketPath, secret, limits } = broker;
  return { owned: broker, socketPath, secret, limits, alive: () => !ended, dial: async () => broker.attachInMemory() };
}

/** The cards, and the machine's memory. */
async function discoverAll(options: OrchestratorOptions, stateId: string, log: Log): Promise<readonly OwnedCard[]> {
  const owned = await discoverCards(options, stateId, log);
  try {
    const memory = ownHostMemory(options.hostMemory ?? {}, owned.map(({ card }) => card), stateId, log);
    return memory === null ? owned : [...owned, memory];
  } catch (error) {
    await Promise.all([...new Set(owned.map(({ reader }) => reader))].map((reader) => reader.close()));
    throw error;
  }
}

/** The given overrides over the defaults. */
function completePolicies(given: NonNullable<OrchestratorOptions['classPolicies']>): Record<RequestClass, ClassPolicy> {
  return {
    interactive: { ...classPolicies.interactive, ...given.interactive },
    normal: { ...classPolicies.normal, ...given.normal },
    background: { ...classPolicies.background, ...given.background },
  };
}
