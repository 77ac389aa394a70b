/** How the broker starts a worker of an engine. */
export interface EngineCommand {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the worker's environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Models one worker may host; 1 where one abort of the engine kills its process. */
  readonly modelsPerWorker: number;
  /** What one of its processes is taken to cost on a real card, before any model, until one has been measured there. Bytes; left out: nothing. */
  readonly floorBytes?: number;
}
