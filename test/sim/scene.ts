/** What most scenarios begin with: the core as it is built, one card, and models that have come to rest on it. */
import { loadCore } from './mutants/load.js';
import { card24, Stage, type StageOptions } from './stage.js';

export const module = await loadCore();
export const device = card24.device;

export function stageOf(options: Omit<StageOptions, 'module'>): Stage {
  return new Stage({ module, ...options });
}

/** Loads a model by one call and lets its minimum residency pass. */
export function settle(stage: Stage, key: string): void {
  const asked = stage.ask(key);
  stage.until(() => asked.outcome !== null);
  stage.to(stage.nowMs + 3_000);
}
