/**
 * What most command lines say, where the state is and on which plain cards to
 * run, is seen to be right at a glance. Loading and compiling the checker costs
 * 90 ms, more than all else of a start; it is loaded for anything beyond this.
 */
const plainCard = /^(auto|cpu|sim:[1-9][0-9]*(KiB|MiB|GiB|KB|MB|GB)?)$/;

/** True only for values that the schema accepts too; false says nothing. */
export function isPlainlyValid(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.entries(value).every(([key, setting]) => {
    if (key === 'state') return typeof setting === 'string' && setting.length > 0 && setting.length <= 4_096;
    return key === 'devices' && arePlainCards(typeof setting === 'string' ? [setting] : setting);
  });
}

function arePlainCards(words: unknown): boolean {
  return Array.isArray(words) && words.length > 0 && words.length <= 64 && new Set(words).size === words.length
    && words.every((word) => typeof word === 'string' && plainCard.test(word));
}
