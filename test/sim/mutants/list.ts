/** Faults worth planting: each is one exact string of the compiled core, replaced at load (D34). */
import { evictionMutants } from './eviction.js';
import { gangMutants } from './gangs.js';
import { ledgerMutants } from './ledger.js';
import { memoryMutants } from './memory.js';
import type { Mutant } from './mutant.js';
import { queueMutants } from './queue.js';
import { restartMutants } from './restart.js';
import { thrashMutants } from './thrash.js';
import { yieldMutants } from './yield.js';

export const mutants: readonly Mutant[] = [...ledgerMutants, ...evictionMutants, ...queueMutants, ...restartMutants, ...gangMutants, ...memoryMutants, ...yieldMutants, ...thrashMutants];
