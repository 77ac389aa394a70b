import { GiB, Stage } from './harness.js';

/** A card with one idle model `a` of 14 GiB in a worker, old enough to be evicted. */
export function withIdle(options: ConstructorParameters<typeof Stage>[0] & { readonly park?: boolean; readonly partial?: boolean; readonly parkable?: boolean } = {}): { stage: Stage; worker: string; lease: string; holder: string } {
  const stage = new Stage(options);
  stage.card();
  const worker = stage.worker({ park: options.park ?? false, partial: options.partial ?? false });
  const lease = stage.resident(worker, 'a', 14 * GiB, { parkable: options.parkable ?? false });
  const holder = stage.session('holder');
  stage.pass(5_000);
  stage.sample();
  return { stage, worker, lease, holder };
}
