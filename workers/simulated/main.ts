#!/usr/bin/env node
/** The simulated worker: `node main.js [PROCESS-SCRIPT-AS-JSON]`, started by a broker. */
import { runWorker } from '../runtime/index.js';
import { SimulatedEngine } from './engine.js';
import { withFalseTongue } from './false-tongue.js';
import { readProcessScript } from './script.js';

const script = readProcessScript(process.argv[2], process.env);
await runWorker(new SimulatedEngine(script), (stream) => withFalseTongue(stream, script));
