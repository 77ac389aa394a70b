/** VRAM by process on AMD cards, from the DRM's fdinfo files: what this user may read; null when that is nothing. */
import { readFile, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';

interface Client {
  readonly id: string;
  readonly bytes: number;
  /** Moved out of the card for want of room; null where the kernel does not say. */
  readonly spilledBytes: number | null;
}

export interface AmdProcess {
  readonly pid: number;
  readonly usedBytes: number;
  readonly spilledBytes: number | null;
}

/**
 * VRAM by pid on the card at `pciSlot`, and what had to leave it. A process may hold one client by several descriptors: each client counts once.
 * Processes whose files are not ours to read are left out; they are foreign to us anyway.
 */
export async function readAmdProcesses(procRoot: string, pciSlot: string): Promise<readonly AmdProcess[] | null> {
  const processes: AmdProcess[] = [];
  let readable = 0;
  for (const name of (await names(procRoot)) ?? []) {
    if (!/^\d+$/.test(name)) continue;
    const clients = await readClients(join(procRoot, name), pciSlot);
    if (clients === null) continue;
    readable += 1;
    if (clients.size > 0) processes.push(sumOf(Number(name), [...clients.values()]));
  }
  return readable === 0 ? null : processes;
}

function sumOf(pid: number, clients: readonly Client[]): AmdProcess {
  const spilled = clients.flatMap(({ spilledBytes }) => (spilledBytes === null ? [] : [spilledBytes]));
  const sum = (figures: readonly number[]): number => figures.reduce((total, bytes) => total + bytes, 0);
  return { pid, usedBytes: sum(clients.map(({ bytes }) => bytes)), spilledBytes: spilled.length === 0 ? null : sum(spilled) };
}

/** By client id; null when the process's files cannot be read. */
async function readClients(folder: string, pciSlot: string): Promise<ReadonlyMap<string, Client> | null> {
  const descriptors = await names(join(folder, 'fd'));
  if (descriptors === null) return null;
  const clients = new Map<string, Client>();
  for (const descriptor of descriptors) {
    const target = await attempt(() => readlink(join(folder, 'fd', descriptor)));
    if (target?.startsWith('/dev/dri/') !== true) continue;
    const client = parseFdinfo((await attempt(() => readFile(join(folder, 'fdinfo', descriptor), 'utf8'))) ?? '', pciSlot);
    if (client !== null) clients.set(client.id, client);
  }
  return clients;
}

/** The client behind one fdinfo text, when it is one of amdgpu on this card. Newer kernels say `resident`, older ones `memory`. */
export function parseFdinfo(text: string, pciSlot: string): Client | null {
  const fields = new Map<string, string>();
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon).trim(), line.slice(colon + 1).trim());
  }
  const id = fields.get('drm-client-id');
  if (fields.get('drm-driver') !== 'amdgpu' || fields.get('drm-pdev') !== pciSlot || id === undefined) return null;
  const bytes = parseBytes(fields.get('drm-resident-vram') ?? fields.get('drm-memory-vram'));
  return bytes === null ? null : { id, bytes, spilledBytes: parseBytes(fields.get('amd-evicted-vram')) };
}

function parseBytes(text: string | undefined): number | null {
  const figure = /^(\d+)(?: (KiB|MiB))?$/.exec(text ?? '');
  if (figure === null) return null;
  return Number(figure[1]) * ({ KiB: 1_024, MiB: 1_024 ** 2 }[figure[2] ?? ''] ?? 1);
}

const names = (path: string): Promise<readonly string[] | null> => attempt(() => readdir(path));

/** Without these nobody can be looked at, and who is left out would pass for foreign. */
const shortages = new Set(['EMFILE', 'ENFILE', 'ENOMEM']);

/** Processes come and go while we look, and many are not ours to look at: then there is nothing to read. Throws when the system has no means to look. */
async function attempt<T>(read: () => Promise<T>): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Error && 'code' in error && !shortages.has(String(error.code))) return null;
    throw error;
  }
}
