/**
 * Who is at the other end of a unix socket, by the kernel's word: SO_PEERCRED
 * through koffi, which is loaded at the first look. Linux alone; elsewhere,
 * and for sockets that are closed, null: not known.
 */
import { createRequire } from 'node:module';

export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
}

/** True where a missing answer means that the look-up failed rather than that there is none. */
export const peerCredentialsSupported = process.platform === 'linux';

const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
/** struct ucred: pid, uid, gid, each 32 bits. */
const ucredBytes = 12;

type Getsockopt = (fd: number, level: number, name: number, value: Uint8Array, length: Uint32Array) => number;
let getsockopt: Getsockopt | null = null;

/** The credentials that the peer of a `net.Socket` had when it connected (or listened). */
export function peerCredentials(socket: object): PeerCredentials | null {
  const fd = fileDescriptor(socket);
  if (!peerCredentialsSupported || fd < 0) return null;
  getsockopt ??= loadGetsockopt();
  const value = new Uint8Array(ucredBytes);
  const length = new Uint32Array([ucredBytes]);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, value, length) !== 0 || length[0] !== ucredBytes) return null;
  const words = new DataView(value.buffer);
  // Native byte order; every platform that koffi and Node both run Linux on is little-endian but s390x.
  const littleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
  return { pid: words.getInt32(0, littleEndian), uid: words.getUint32(4, littleEndian) };
}

/** Node has no public name for it. */
function fileDescriptor(socket: object): number {
  const handle = (socket as { readonly _handle?: { readonly fd?: number } | null })._handle;
  return handle?.fd ?? -1;
}

function loadGetsockopt(): Getsockopt {
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
  const library = koffi.load(null);
  return library.func('int getsockopt(int fd, int level, int name, _Out_ uint8_t *value, _Inout_ uint32_t *length)') as Getsockopt;
}
