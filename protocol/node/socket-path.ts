/**
 * Names of sockets, and what each system allows. Linux and macOS: a path in
 * the file system, in a 0700 folder, 0600 itself. Windows has no such sockets
 * in Node: a named pipe stands in, whose name is made from the path here and
 * nowhere else; it has no mode, so there the proof in `hello` is the only gate.
 */
import { LeaseholdError } from '../errors.js';

/** Most bytes of a socket path, without the closing NUL: sun_path has 108 on Linux, 104 on macOS. Longer ones are cut silently by the system. */
export const socketPathBytesMax = process.platform === 'linux' ? 107 : process.platform === 'win32' ? 240 : 103;

/** Throws `socket_path_too_long`, or `input_invalid` for a path no socket can have. */
export function checkSocketPath(path: string): void {
  const bytes = Buffer.byteLength(path);
  if (bytes > socketPathBytesMax) {
    throw new LeaseholdError('socket_path_too_long', { path, bytes, limitBytes: socketPathBytesMax });
  }
  // A leading NUL names an abstract socket, which has no mode; one further in would end the path.
  if (bytes === 0 || path.includes('\0')) {
    throw new LeaseholdError('input_invalid', { field: 'socket path', reason: 'it is empty or holds a NUL' });
  }
}

const pipePrefix = '\\\\.\\pipe\\';

/**
 * What is handed to the transport for `path`: the path itself; on Windows the
 * name of a pipe, to which the transport adds the prefix. A path that is a
 * pipe's already keeps its name.
 */
export function socketAddress(path: string): string {
  if (process.platform !== 'win32') return path;
  return path.startsWith(pipePrefix) ? path.slice(pipePrefix.length) : `leasehold-${path.replace(/[^0-9A-Za-z._-]+/g, '-')}`;
}
