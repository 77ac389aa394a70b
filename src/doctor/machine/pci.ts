/** Graphics cards on the PCI bus, whether or not any driver shows them. */
import { posix } from 'node:path';
import type { Machine } from './machine.js';

export type Maker = 'nvidia' | 'amd' | 'intel';

export interface PciCard {
  readonly slot: string;
  readonly maker: Maker;
  /** The kernel driver it is bound to; null: none. */
  readonly driver: string | null;
}

const makers: Readonly<Record<string, Maker>> = { '0x10de': 'nvidia', '0x1002': 'amd', '0x8086': 'intel' };
const folder = '/sys/bus/pci/devices';

/** Display controllers (class 03) and accelerators (class 12) of makers that are known. */
export async function readPciCards(machine: Machine): Promise<readonly PciCard[]> {
  const cards = await Promise.all((await machine.names(folder)).map(async (slot): Promise<PciCard | null> => {
    const path = posix.join(folder, slot);
    const [vendor, kind, driver] = await Promise.all([machine.readText(posix.join(path, 'vendor')), machine.readText(posix.join(path, 'class')), machine.linkTarget(posix.join(path, 'driver'))]);
    const maker = makers[vendor?.trim() ?? ''];
    if (maker === undefined || !/^0x(03|12)/.test(kind ?? '')) return null;
    return { slot, maker, driver: driver === null ? null : posix.basename(driver) };
  }));
  return cards.filter((card) => card !== null);
}
