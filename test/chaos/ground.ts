/**
 * Where parts are killed: a daemon with one simulated card and simulated memory of the machine, its workers, a program that holds a lease, a program that
 * asks, all processes of their own, and one that is attached in this process and never killed.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOrchestrator, type LedgerState, type Orchestrator, type OrchestratorOptions } from '../../src/index.js';
import { LinuxProcessTable } from '../../broker/supervisor/process-table-linux.js';
import { startHost, type Host } from '../integration/host-process.js';
import { MiB, eager, engine, quick, scripted, until } from '../integration/support.js';

export const parts = ['broker', 'worker', 'holder', 'client'] as const;
export type Part = (typeof parts)[number];

/** What each model says: an answer is right or it is none. */
export const answers: Readonly<Record<string, string>> = { tales: 'once upon a time', sums: 'forty-two', facts: 'the sky is blue', odes: 'sing, goddess' };

const heldBytes = 4 * MiB;
/** Two of the four models fit beside the held lease. */
const cardBytes = 40;
/** Room for the copy of one of the two models that can be parked, beside what processes take. */
const memory = 'sim:28MiB,floor=1MiB';
const parkable: readonly string[] = ['tales', 'odes'];
const restMs = 60_000;

const options = (stateFolder: string): OrchestratorOptions => ({
  devices: [`sim:${String(cardBytes)}MiB`], hostMemory: { lease: memory }, classPolicies: eager, stateFolder, broker: 'own',
  engines: engine({ grandchildren: 1, grandchildrenDetached: true }),
  models: Object.fromEntries(Object.entries(answers).map(([name, text]) => [name, scripted({ text, weightsBytes: 12 * MiB, parkable: parkable.includes(name) })])),
  limits: { ...quick, workerIdleMs: 600_000, reattachGraceMs: 60_000, backoffFirstMs: 50, backoffLastMs: 500 },
});

export class Ground {
  /** The one that stays. */
  client!: Orchestrator;
  /** Brokers there have been; processes of each carry its id. */
  readonly boots: string[] = [];
  readonly #stateFolder = mkdtempSync(join(tmpdir(), 'lh-'));
  readonly #table = new LinuxProcessTable();
  readonly #ends: (() => unknown)[] = [];
  #daemon!: Host;
  #holder!: Host;
  #asker!: Host;

  static async open(): Promise<Ground> {
    const ground = new Ground();
    await ground.#startBroker();
    ground.client = await createOrchestrator({ ...options(ground.#stateFolder), broker: 'attach', onBrokerLost: () => undefined });
    await ground.#startHolder();
    await ground.#startAsker();
    return ground;
  }

  /** Has the other program ask, too; what it hears is its own. */
  askElsewhere(model: string): void {
    this.#asker.tell('ask', model, 'hello');
  }

  /** Kills one part with SIGKILL and puts a new one in its place, except for a worker: that is the broker's to do. False: there was none. */
  async kill(part: Part, choose: (count: number) => number): Promise<boolean> {
    switch (part) {
      case 'broker':
        await killed(this.#daemon);
        await this.#startBroker();
        return true;
      case 'holder':
        await killed(this.#holder);
        await this.#startHolder();
        return true;
      case 'client':
        await killed(this.#asker);
        await this.#startAsker();
        return true;
      case 'worker': {
        const pids = (await this.client.ledger()).workers.flatMap(({ pid }) => (pid === null ? [] : [pid]));
        const pid = pids[choose(pids.length)];
        if (pid === undefined) return false;
        process.kill(pid, 'SIGKILL');
        return true;
      }
    }
  }

  /** Waits until the ledger says, to the byte, what a count from nothing says; else says what differs. */
  async atRest(): Promise<LedgerState> {
    let differs: readonly string[] = [];
    try {
      return await until('the ledger to be what is there', async () => {
        const ledger = await this.client.ledger();
        differs = this.#differences(ledger);
        return differs.length === 0 ? ledger : null;
      }, restMs);
    } catch (error) {
      throw new Error(`${error instanceof Error ? error.message : String(error)}: ${differs.join('; ')}`, { cause: error });
    }
  }

  #differences({ cards, host, leases, processes, waiting, workers, holders, simulatedCards }: LedgerState): readonly string[] {
    const differs: string[] = [];
    const expect = (what: string, is: unknown, should: unknown): void => { if (is !== should) differs.push(`${what} is ${String(is)}, counted ${String(should)}`); };
    expect('requests that wait', waiting.length, 0);
    for (const { generation, state } of processes) expect(`the state of ${generation}`, state, 'ready');
    for (const { model, state } of leases) if (state !== 'resident' && state !== 'parked') differs.push(`${model} is ${state}`);
    const ledgers = [
      ...cards.map((card) => ({ card, own: leases.filter(({ device }) => device === card.device).map(({ generation, chargedBytes, residentBytes }) => ({ generation, chargedBytes, bytes: residentBytes })) })),
      ...(host === null ? [] : [{ card: host, own: leases.map(({ generation, hostChargedBytes, hostBytes }) => ({ generation, chargedBytes: hostChargedBytes ?? 0, bytes: hostBytes })) }]),
    ];
    expect('how many ledgers there are', ledgers.length, 2);
    for (const { card, own } of ledgers) {
      const usedBytes = simulatedCards.find(({ device }) => device === card.device)?.usedBytes;
      // What the holder holds it does not take of the simulated card.
      const takenBytes = own.filter(({ generation }) => /-w\d+$/.test(generation)).reduce((sum, { bytes }) => sum + bytes, 0);
      expect(`what is taken of ${card.device}`, usedBytes, takenBytes + card.floorBytes);
      expect(`what was read of ${card.device}`, card.sampledUsedBytes, usedBytes);
      expect(`what is leased on ${card.device}`, card.leasedBytes, own.reduce((sum, { chargedBytes }) => sum + chargedBytes, 0));
      expect(`what is held back on ${card.device}`, card.holdBytes, 0);
      expect(`strangers' bytes on ${card.device}`, card.foreignBytes, 0);
      expect(`residue on ${card.device}`, card.residueBytes, 0);
      expect(`what returns to ${card.device}`, card.returningBytes, 0);
      expect(`what closes ${card.device}`, card.closed, null);
    }
    expect('the leases that are held by programs', leases.filter(({ generation }) => !/-w\d+$/.test(generation)).length, 1);
    for (const { generation, pid } of [...workers, ...holders]) if (pid !== null && this.#table.find(pid) === null) differs.push(`${generation} (pid ${String(pid)}) is dead`);
    // Each worker has one grandchild; whoever else carries a token of ours is an orphan.
    expect('processes of all brokers there have been', this.#carriers().length, workers.length * 2);
    return differs;
  }

  #carriers(): readonly number[] {
    return (this.#table.list() ?? []).filter(({ token, ended }) => !ended && token !== null && this.boots.some((bootId) => token.startsWith(bootId))).map(({ pid }) => pid);
  }

  /** Closes everything as people do; rejects when a process is left. */
  async close(): Promise<void> {
    await this.client.close();
    this.#daemon.tell('close');
    await this.#daemon.hear('closed');
    for (const host of [this.#holder, this.#asker]) await killed(host);
    for (const end of this.#ends) await end();
    await until('nothing to be left', () => this.#carriers().length === 0);
    rmSync(this.#stateFolder, { recursive: true, force: true });
  }

  #start(how: Partial<OrchestratorOptions>): Host {
    return startHost({ teardown: (end: () => unknown) => { this.#ends.push(end); } }, { ...options(this.#stateFolder), ...how });
  }

  async #startBroker(): Promise<void> {
    this.#daemon = this.#start({ broker: 'own' });
    this.boots.push(String((await this.#daemon.hear('up'))['bootId']));
  }

  async #startHolder(): Promise<void> {
    this.#holder = this.#start({ broker: 'attach' });
    await this.#holder.hear('up');
    this.#holder.tell('lease', String(heldBytes));
    await this.#holder.hear('leased');
  }

  async #startAsker(): Promise<void> {
    this.#asker = this.#start({ broker: 'attach' });
    await this.#asker.hear('up');
  }
}

async function killed({ child, exited }: Host): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
  await exited;
}
