/** What the exit status of every command means. Documented in `leasehold --help`; a number never changes its meaning. */
import type { ErrorCode, LeaseholdError } from '../../protocol/index.js';

export const exitCodes = {
  done: 0,
  /** It failed, for a reason that is none of the others. */
  failed: 1,
  /** The command line, the configuration or the input is wrong: the same call can never work. */
  usage: 2,
  /** No broker runs where one was looked for. */
  noBroker: 3,
  /** There was no room, or not in time. */
  noRoom: 4,
  /** Ended by Ctrl-C. */
  interrupted: 130,
  /** Ended by SIGTERM or SIGHUP. */
  terminated: 143,
} as const;

const usage: readonly ErrorCode[] = [
  'config_unreadable', 'config_invalid', 'limit_relation', 'input_invalid', 'model_unknown', 'model_invalid', 'device_unknown',
  'bytes_invalid', 'engine_unknown', 'context_too_small', 'embedding_unsupported', 'socket_path_too_long',
];
const noRoom: readonly ErrorCode[] = [
  'never_fits', 'deadline_passed', 'queue_full', 'resize_denied', 'over_lease', 'out_of_memory', 'quarantined', 'call_queue_full', 'too_many_workers',
];

export function exitCodeOf({ code }: LeaseholdError): number {
  if (usage.includes(code)) return exitCodes.usage;
  if (noRoom.includes(code)) return exitCodes.noRoom;
  if (code === 'broker_lost' || code === 'connect_failed') return exitCodes.noBroker;
  return code === 'request_cancelled' ? exitCodes.interrupted : exitCodes.failed;
}
