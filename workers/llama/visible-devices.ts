/** Whether a backend computes on the card that was given, and on no other. */

const makers = [['nvidia', /nvidia|geforce|quadro|tesla/i], ['amd', /\bamd\b|radeon|instinct/i], ['intel', /\bintel\b|\barc\b/i], ['apple', /\bapple\b/i]] as const;

/**
 * Null when all that the backend sees (`names`) can be the card; else why not. Vulkan knows no UUIDs in its environment,
 * so on a machine with several cards it would compute on all of them, and nobody leased those.
 */
export function visibilityFault(names: readonly string[], cardName: string): string | null {
  const [name] = names;
  if (name === undefined) return 'it sees no card';
  if (names.length > 1) return `it sees ${String(names.length)} cards (${names.join(', ')}) and cannot be kept to one`;
  const [seen, given] = [makerOf(name), makerOf(cardName)];
  return seen === null || given === null || seen === given ? null : `it sees another card, ${name}`;
}

function makerOf(name: string): string | null {
  return makers.find(([, pattern]) => pattern.test(name))?.[0] ?? null;
}
