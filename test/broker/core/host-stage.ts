/** A stage with the machine's memory, and models that keep copies in it. */
import { GiB, Stage, card0, host0, only, type AskOptions } from './harness.js';

/** A stage with one large card and so much memory. */
export function stage(totalBytes: number, options: ConstructorParameters<typeof Stage>[0] & { readonly cards?: number } = {}): Stage {
  const made = new Stage(options);
  for (let n = 0; n < (options.cards ?? 1); n++) made.card(`GPU-${String(n)}`, { totalBytes: 100 * GiB });
  made.memory(totalBytes);
  return made;
}

/** A python worker with one parkable model at rest, its copy kept where it may be. */
export function kept(on: Stage, worker: string, model: string, bytes: number, options: AskOptions = {}): string {
  const grant = only(on.ask(worker, model, bytes, { parkable: true, host: { copyBytes: bytes }, ...options }).effects, 'grant');
  const hostBytes = grant.keepCopy === true ? bytes : 0;
  on.take(worker, hostBytes, host0);
  on.load(worker, grant.lease, bytes, { hostBytes, ...(options.device === undefined ? {} : { device: options.device }) });
  on.sample(options.device ?? card0);
  on.sample(host0);
  return grant.lease;
}
