/** The llama worker’s program. What its children find out is kept beside its socket, in the broker’s private folder. */
import { dirname, isAbsolute, join } from 'node:path';
import { runWorker } from '../runtime/index.js';
import { createLlamaEngine } from './engine.js';

const socket = process.env['LEASEHOLD_DATA_SOCKET'] ?? '';
// A pipe of Windows has no folder.
const verdictFolder = process.platform !== 'win32' && isAbsolute(socket) ? join(dirname(socket), 'llama') : null;

const cpuFallback = process.argv.includes('--cpu-fallback=allow') ? 'allow' : 'refuse';

await runWorker(createLlamaEngine({ verdictFolder, cpuFallback }));
