#!/usr/bin/env node
/** The simulated worker: `node main.js [PROCESS-SCRIPT-AS-JSON]`, started by a broker. */
import { runWorker } from '../runtime/index.js';
import { SimulatedEngine } from './engine.js';
import { readProcessScript } from './script.js';

await runWorker(new SimulatedEngine(readProcessScript(process.argv[2], process.env)));
