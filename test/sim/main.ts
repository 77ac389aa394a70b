// The simulator: npm run -s sim -- [--seeds N] [--steps N] [--from SEED] [--json] [--trace] [--mutants]
import { simulate } from './command.js';

process.exitCode = await simulate(process.argv.slice(2));
