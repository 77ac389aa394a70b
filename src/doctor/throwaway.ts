/** A broker for a moment, with one simulated card and a folder of its own: it starts a worker as any broker does, and is in nobody's way. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SimulatedCard, simulatedDevice } from '../../broker/devices/index.js';
import { createBroker, type EngineCommand } from '../../broker/shell/index.js';
import { connectBroker } from '../client/index.js';
import type { BrokerLedger } from './running-broker.js';

/** No real card is shown to the worker: nobody has leased one to it. */
const hideCards: Readonly<Record<string, string>> = {
  CUDA_VISIBLE_DEVICES: '-1', ROCR_VISIBLE_DEVICES: '-1', HIP_VISIBLE_DEVICES: '-1', GGML_VK_VISIBLE_DEVICES: '',
};
const cardBytes = 1024 * 1024 * 1024;

export interface Attached {
  readonly attachMs: number;
  /** What the worker says of itself. */
  readonly versions: Readonly<Record<string, string>>;
}

/** Starts a worker of `engine`, waits until it has attached and is ready, and ends everything. Rejects with what a caller would get. */
export async function attachWorker(engine: EngineCommand, timeoutMs: number, signal: AbortSignal): Promise<Attached> {
  const stateFolder = await mkdtemp(join(tmpdir(), 'leasehold-doctor-'));
  try {
    const broker = await createBroker({
      stateFolder,
      engines: [{ ...engine, env: { ...engine.env, ...hideCards } }],
      discover: async (stateId) => {
        const reader = new SimulatedCard({ device: simulatedDevice(stateId, 0), totalBytes: cardBytes, floorBytes: 0, lagMs: 0, blind: false, name: null });
        return [{ card: reader.description, reader, reserveBytes: 0 }];
      },
      limits: { spawnTimeoutMs: timeoutMs },
    });
    try {
      const session = await connectBroker({ role: 'client', stream: broker.attachInMemory(), secret: broker.secret, name: 'leasehold doctor' });
      const beganMs = performance.now();
      await session.place({ model: 'doctor', engine: engine.name, estimateBytes: null, deadlineMs: timeoutMs, signal });
      const attachMs = Math.round(performance.now() - beganMs);
      const { workers } = await session.ledger<BrokerLedger>();
      return { attachMs, versions: workers[0]?.versions ?? {} };
    } finally {
      await broker.close();
    }
  } finally {
    await rm(stateFolder, { recursive: true, force: true });
  }
}
