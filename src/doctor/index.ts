/** `leasehold doctor`: is this machine fit to lease its cards, and what is to be mended? */
export { allChecks } from './all-checks.js';
export { groupOf, groups, type Check } from './check.js';
export { examineApart, type ApartOptions } from './examine-apart.js';
export { diagnose, type Diagnosis, type Finding, type Verdict } from './finding.js';
