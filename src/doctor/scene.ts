/** What several checks need to know, each found out once: cards, the running broker, the configuration. */
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createAmdgpuRung, createNvidiaSmiRung, createNvmlRung, type Rung } from '../../broker/devices/index.js';
import { LeaseholdError } from '../../protocol/index.js';
import { cardLocksPath, defaultStatePath } from '../../broker/shell/index.js';
import { loadConfig, type Flags, type LoadedConfig } from '../config/index.js';
import { packageRoot } from '../version.js';
import { createMachine, type Machine } from './machine/machine.js';
import { lookForBroker, type BrokerSeen } from './running-broker.js';
import { surveyCards, surveyRungs, type CardSeen, type RungSeen } from './survey.js';

export interface SceneOptions {
  /** As on the command line. */
  readonly flags?: Flags;
  readonly machine?: Machine;
  /** Highest first. Default: all that there are. */
  readonly rungs?: readonly Rung[];
  /** Where the package lies; and where its compiled half does. */
  readonly packageRoot?: string;
  readonly builtRoot?: string;
  /** Where the cards' locks lie. */
  readonly cardLocksPath?: string;
}

export type ConfigurationSeen = { readonly kind: 'loaded'; readonly config: LoadedConfig } | { readonly kind: 'refused'; readonly error: LeaseholdError };

export interface Scene {
  readonly machine: Machine;
  readonly flags: Flags;
  readonly packageRoot: string;
  readonly builtRoot: string;
  readonly cardLocksPath: string;
  configuration(): Promise<ConfigurationSeen>;
  /** Where the state lives; with a configuration that is refused, where it would without one. */
  statePath(): Promise<string>;
  broker(): Promise<BrokerSeen>;
  rungs(): Promise<readonly RungSeen[]>;
  /** Every card that any rung shows. */
  cards(): Promise<readonly CardSeen[]>;
  /** Ends what was started to read the cards. */
  close(): Promise<void>;
}

/** Opening a driver that nothing keeps open takes seconds; a check that asks for cards waits a little longer than this. */
const discoverTimeoutMs = 20_000;
/** The deadline of checks that ask for cards. */
export const cardsDeadlineMs = 30_000;

export function createScene(options: SceneOptions = {}): Scene {
  const machine = options.machine ?? createMachine();
  const flags = options.flags ?? {};
  const rungs = options.rungs ?? [
    createNvmlRung({ platform: machine.platform, discoverTimeoutMs }), createNvidiaSmiRung({ platform: machine.platform }), createAmdgpuRung(),
  ];
  const configuration = once(() => readConfiguration(machine, flags));
  const statePath = once(async () => {
    const seen = await configuration();
    return (seen.kind === 'loaded' ? seen.config.options.stateFolder : flags.state) ?? defaultStatePath();
  });
  const surveyed = once(() => surveyRungs(rungs));
  return {
    machine,
    flags,
    packageRoot: options.packageRoot ?? packageRoot(),
    builtRoot: options.builtRoot ?? dirname(dirname(dirname(fileURLToPath(import.meta.url)))),
    cardLocksPath: options.cardLocksPath ?? cardLocksPath(),
    configuration,
    statePath,
    broker: once(async () => lookForBroker(machine, await statePath())),
    rungs: surveyed,
    cards: once(async () => surveyCards(await surveyed())),
    close: async () => { await Promise.all(rungs.map((rung) => rung.close())); },
  };
}

async function readConfiguration({ env, cwd, home }: Machine, flags: Flags): Promise<ConfigurationSeen> {
  try {
    return { kind: 'loaded', config: await loadConfig({ flags, env, cwd, home }) };
  } catch (error) {
    // Whatever it is, it is told once, by the check of the file; the others go on without a configuration.
    return { kind: 'refused', error: LeaseholdError.from(error) };
  }
}

function once<T>(find: () => Promise<T>): () => Promise<T> {
  let found: Promise<T> | null = null;
  return () => (found ??= find());
}
