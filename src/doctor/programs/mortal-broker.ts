/** A process for `system.guard`: starts a worker as a broker does, says which, and waits to be killed. */
import { fileURLToPath } from 'node:url';
import { createSupervisor, nodeCommand } from '../../../broker/supervisor/index.js';

const fail = (reason: string): void => {
  process.stdout.write(`${reason}\n`);
  process.exit(1);
};

const supervisor = createSupervisor({
  onSpawned: (_generation, identity) => void process.stdout.write(`${JSON.stringify(identity)}\n`),
  onSpawnFailed: (_generation, reason) => { fail(reason); },
  onExited: (_generation, { how }) => { fail(how); },
  onKillUnconfirmed: (_generation, reason) => { fail(reason); },
  onOutput: () => undefined,
});
supervisor.spawn({ generation: 'doctor-w1', spawnId: 'doctor-w1', ...nodeCommand(fileURLToPath(new URL('./deaf.js', import.meta.url))) });
// Should whoever started us forget us.
setTimeout(() => process.exit(), 60_000);
