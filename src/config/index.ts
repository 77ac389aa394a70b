/** Configuration: `leasehold.yaml`, the environment and the command line as one checked set of options. */
export { configSearchPaths, loadConfig, type LoadConfigRequest, type LoadedConfig } from './load.js';
export { configSchemaPath } from './schema-file.js';
export { configVariables, limitVariable, type Flags } from './spoken.js';
export { logLevels, type LogLevel } from './written.js';
export { parseDurationMs } from './durations.js';
