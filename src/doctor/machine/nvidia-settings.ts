/** Settings and error counts of NVIDIA cards, as nvidia-smi prints them. Pure. */
import { normaliseDevice } from '../../../broker/devices/index.js';

/** Fields that every driver of the last ten years knows: one that it does not would make the whole query fail. */
export const settingsQuery = 'uuid,compute_mode,persistence_mode,display_active,ecc.errors.uncorrected.volatile.total';

export interface CardSettings {
  readonly device: string;
  readonly computeMode: string;
  readonly persistence: string;
  readonly display: boolean;
  /** Null: the card does not count them. */
  readonly uncorrectedErrors: number | null;
}

/** One line a card; anything else is passed over. */
export function parseSettings(stdout: string): readonly CardSettings[] {
  return stdout.split('\n').flatMap((line): CardSettings[] => {
    const [uuid = '', computeMode = '', persistence = '', display = '', errors = ''] = line.split(',').map((field) => field.trim());
    const device = normaliseDevice(uuid);
    if (device === null || computeMode === '') return [];
    return [{ device, computeMode, persistence, display: display === 'Enabled', uncorrectedErrors: /^\d+$/.test(errors) ? Number(errors) : null }];
  });
}
