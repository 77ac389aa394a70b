/** One spelling for each card, so that what NVML, CUDA, nvidia-smi and the kernel say can be compared (R28). */

const hexUuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const oldMig = /^(?:gpu-)?([0-9a-f-]{36})\/(\d+)\/(\d+)$/;

/**
 * The canonical spelling of a device name, or null when it names none: the kind in capitals, the rest in small
 * letters, `GPU-` put before a bare UUID or a bare AMD id of 16 hex digits. Simulated and CPU names stay as they are.
 * An index is no name: `0` gives null.
 */
export function normaliseDevice(spelling: string): string | null {
  const text = spelling.trim();
  if (/^(SIM|CPU)-[0-9A-Za-z-]+$/.test(text)) return text;
  const lower = text.toLowerCase();
  if (lower.startsWith('mig-')) return normaliseMig(lower.slice('mig-'.length));
  if (lower.startsWith('gpu-')) return normaliseGpu(lower.slice('gpu-'.length));
  return normaliseBare(lower);
}

/** Both MIG spellings: `MIG-<uuid>` (since driver 470) and `MIG-GPU-<uuid>/<instance>/<compute instance>`. */
function normaliseMig(rest: string): string | null {
  if (hexUuid.test(rest)) return `MIG-${rest}`;
  const match = oldMig.exec(rest);
  if (match?.[1] === undefined || !hexUuid.test(match[1])) return null;
  return `MIG-GPU-${match[1]}/${match[2] ?? ''}/${match[3] ?? ''}`;
}

function normaliseGpu(rest: string): string | null {
  return normaliseBare(rest) ?? (/^[0-9a-z][0-9a-z-]{0,80}$/.test(rest) ? `GPU-${rest}` : null);
}

function normaliseBare(text: string): string | null {
  if (hexUuid.test(text)) return `GPU-${text}`;
  // CUDA's device properties give 16 raw bytes, which programs print without dashes.
  const plain = /^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/.exec(text);
  if (plain !== null) return `GPU-${plain.slice(1).join('-')}`;
  const amd = /^(?:0x)?([0-9a-f]{16})$/.exec(text);
  return amd === null ? null : `GPU-${amd[1] ?? ''}`;
}
