/** The part of node-ipc 12.0.0 that transport.ts uses; the package ships no types. */
declare module 'node-ipc' {
  import type { Server as NetServer, Socket } from 'node:net';

  export interface Configuration {
    id: string;
    appspace: string;
    silent: boolean;
    rawBuffer: boolean;
    encoding: BufferEncoding;
    unlink: boolean;
    maxConnections: number;
    maxRetries: number;
    stopRetrying: boolean;
    retry: number;
  }

  export interface Server {
    /** The listening server; false before `start`. */
    server: NetServer | false;
    sockets: Socket[];
    start(): void;
    stop(): void;
    on(event: 'connect', listener: (socket: Socket) => void): this;
    on(event: 'start', listener: () => void): this;
    on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): this;
  }

  export interface Client {
    socket: Socket;
    on(event: 'connect' | 'disconnect', listener: () => void): this;
    on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): this;
    off(event: string, listener: string): this;
  }

  export class IPCModule {
    config: Configuration;
    of: Record<string, Client | undefined>;
    server: Server | false;
    serve(path: string, callback?: () => void): void;
    connectTo(id: string, path: string, callback?: () => void): void;
    disconnect(id: string): void;
  }
}
