/** Every check, in the order in which they are told. */
import type { Check } from './check.js';
import { brokerChecks } from './checks/broker.js';
import { cardChecks } from './checks/cards.js';
import { configurationChecks } from './checks/configuration.js';
import { engineChecks } from './checks/engines.js';
import { limitChecks } from './checks/limits.js';
import { maskChecks } from './checks/masks.js';
import { memoryChecks } from './checks/memory.js';
import { programChecks } from './checks/program.js';
import { rungChecks } from './checks/rungs.js';
import { stateChecks } from './checks/state.js';
import { systemChecks } from './checks/system.js';

export const allChecks: readonly Check[] = [
  ...programChecks, ...stateChecks, ...brokerChecks, ...rungChecks, ...cardChecks, ...maskChecks, ...limitChecks, ...memoryChecks, ...systemChecks,
  ...configurationChecks, ...engineChecks,
];
