/** The environment of a process we start: ours, less what is ours alone, plus what it is given. */

/** Node's own wiring between a parent and its child: in a grandchild these name descriptors that it does not have. */
const wiring = new Set(['NODE_CHANNEL_FD', 'NODE_CHANNEL_SERIALIZATION_MODE', 'NODE_UNIQUE_ID', 'ELECTRON_RUN_AS_NODE']);

/**
 * A copy of `base` without any LEASEHOLD_* name (state folder, secret, the key and token of a broker that is itself
 * somebody's worker) and without Node's wiring, then `given` over it.
 */
export function cleanEnvironment(base: NodeJS.ProcessEnv, given: Readonly<Record<string, string>>): Record<string, string> {
  const clean: Record<string, string> = {};
  for (const [name, value] of Object.entries(base)) {
    if (value === undefined || name.toUpperCase().startsWith('LEASEHOLD_') || wiring.has(name)) continue;
    clean[name] = value;
  }
  return { ...clean, ...given };
}

/** Values that must not show in any log: those of given names that say so, when long enough to be a secret. */
export function secretsOf(given: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(given)
    .filter(([name, value]) => /KEY|SECRET|TOKEN|PASSWORD/i.test(name) && value.length >= 8)
    .map(([, value]) => value);
}
