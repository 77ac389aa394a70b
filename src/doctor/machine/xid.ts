/** XID errors: what the NVIDIA driver writes into the kernel's log when a card or a program on it misbehaves. Pure. */

export interface Xid {
  readonly code: number;
  readonly slot: string;
  readonly times: number;
  readonly meaning: string;
  /** The card, its memory or its driver; else a program that was on it. */
  readonly ofCard: boolean;
}

/** Those that are of the card itself, or that people ask about; all others are told by number. */
const meanings: Readonly<Record<number, readonly [meaning: string, ofCard: boolean]>> = {
  13: ['a program computed wrong', false], 31: ['a program used memory that it does not have', false], 43: ['a program was stopped', false], 45: ['a program was ended', false],
  48: ['a memory error that could not be corrected', true], 62: ['the card stopped itself', true], 63: ['a row of memory was replaced', true], 64: ['a row of memory could not be replaced', true],
  74: ['an error of NVLink', true], 79: ['the card fell off the bus', true], 92: ['many memory errors', true], 94: ['a memory error, contained', true], 95: ['a memory error, not contained', true],
  119: ['the card\'s own processor does not answer', true], 120: ['the card\'s own processor failed', true], 140: ['a memory error that could not be corrected', true], 154: ['the card asks to be reset', true],
};

/** `NVRM: Xid (PCI:0000:65:00): 79, …`, each code of a card once, with how often it stands there. */
export function parseXids(kernelLog: string): readonly Xid[] {
  const found = new Map<string, Xid>();
  for (const [, slot = '', digits = ''] of kernelLog.matchAll(/NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)/g)) {
    const code = Number(digits);
    const [meaning, ofCard] = meanings[code] ?? ['not one that is known here', false];
    const known = found.get(`${slot} ${digits}`);
    found.set(`${slot} ${digits}`, { code, slot, meaning, ofCard, times: (known?.times ?? 0) + 1 });
  }
  return [...found.values()];
}
