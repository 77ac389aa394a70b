/** A broker with one large simulated card and no engines, for benchmarks and tests of the wire. */
import { createBroker, silentLog } from '../../broker/shell/index.js';
import { discoverCards } from '../orchestrator/discover.js';

export interface BareBroker {
  readonly socketPath: string;
  readonly secret: string;
  readonly device: string;
  close(): Promise<void>;
}

export async function startBareBroker(stateFolder: string): Promise<BareBroker> {
  const broker = await createBroker({
    stateFolder,
    engines: [],
    discover: (stateId) => discoverCards({ devices: ['sim:64GiB'] }, stateId, silentLog),
  });
  const [card] = broker.devices;
  if (card === undefined) throw new Error('the simulated card is missing');
  return { socketPath: broker.socketPath, secret: broker.secret, device: card.device, close: () => broker.close() };
}
