/** What the exit status of every command means. Documented in `leasehold --help`; a number never changes its meaning. */
import type { ErrorCode, LeaseholdError } from '../../protocol/index.js';

export const exitCodes = {
  done: 0,
  /** It failed, for a reason that is none of the others. */
  failed: 1,
  /** The command line, the configuration or the input is wrong: it works when a person has put that right, and not before. */
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

/** Every code of the error table: a new one is decided here, or does not compile. */
const statusOf: Readonly<Record<ErrorCode, keyof typeof exitCodes>> = {
  // The wire
  frame_too_large: 'failed', frame_malformed: 'failed', message_unknown: 'failed', message_invalid: 'failed', message_unexpected: 'failed',
  id_in_use: 'failed', answer_unknown: 'failed', protocol_version: 'failed', hello_refused: 'failed', hello_timeout: 'failed', peer_uid: 'failed', peer_pid_unseen: 'failed',
  peer_too_slow: 'failed', peers_hold_too_much: 'failed', too_many_sessions: 'noRoom', too_many_own_sessions: 'noRoom', too_many_requests: 'noRoom', connection_lost: 'failed', ticket_refused: 'failed',
  // The state folder is a setting: one that no socket or file can be made in is a wrong one.
  socket_path_too_long: 'usage', socket_in_use: 'failed', connect_failed: 'noBroker', listen_failed: 'usage', state_unwritable: 'usage',
  // Room. A card that cannot be read may have any: unknown is not full.
  never_fits: 'noRoom', deadline_passed: 'noRoom', queue_full: 'noRoom', device_lost: 'failed', device_unmeasured: 'failed', over_lease: 'noRoom',
  resize_denied: 'noRoom', quarantined: 'noRoom', out_of_memory: 'noRoom', too_many_leases: 'noRoom', too_many_pins: 'failed', too_many_workers: 'noRoom', call_queue_full: 'noRoom',
  // Leases and moves
  lease_unknown: 'failed', lease_not_yours: 'failed', generation_stale: 'failed', model_loading_elsewhere: 'failed', more_freed_than_held: 'failed',
  backing_off: 'failed', pinned: 'failed', gang_unsupported: 'failed', gang_broken: 'failed', busy: 'failed', unsupported: 'failed', move_failed: 'failed', command_expired: 'failed',
  // Processes and engines
  spawn_failed: 'failed', worker_exited: 'failed', worker_silent: 'failed', engine_missing: 'failed', load_failed: 'failed', engine_hung: 'failed', card_unusable: 'failed',
  broker_lost: 'noBroker', broker_missing: 'noBroker', broker_running: 'failed', resume_refused: 'failed', shutting_down: 'failed', answer_cut: 'failed', generation_failed: 'failed', stream_unread: 'failed',
  // What the user gave
  device_unknown: 'usage', bytes_invalid: 'usage', model_unknown: 'usage', model_invalid: 'usage', model_key_taken: 'failed', engine_unknown: 'usage', estimate_unknown: 'usage',
  context_too_small: 'usage', embedding_unsupported: 'usage', input_invalid: 'usage', config_unreadable: 'usage', config_invalid: 'usage', limit_relation: 'usage',
  // Models from a hub: what another reference or setting would mend is usage; what the network or the disk did is not.
  reference_invalid: 'usage', repository_missing: 'usage', repository_private: 'usage', repository_gated: 'usage', revision_missing: 'usage', config_json_missing: 'usage',
  weights_missing: 'usage', weights_over_budget: 'usage', security_flagged: 'usage', model_config_invalid: 'usage', architecture_undeclared: 'usage', context_undeclared: 'usage',
  dtype_unsupported: 'usage', weights_layout_invalid: 'usage', file_name_unsafe: 'usage', listing_too_large: 'usage', remote_code_refused: 'usage', architecture_unsupported: 'usage',
  quantization_unsupported: 'usage', gguf_ambiguous: 'usage', gguf_missing: 'usage', gguf_incomplete: 'usage', profile_unknown: 'usage', not_staged: 'usage', hash_pin_mismatch: 'usage',
  hub_unreachable: 'failed', hub_answer_invalid: 'failed', revision_unresolved: 'failed', commit_gone: 'failed', profile_invalid: 'failed', profile_tampered: 'failed',
  profile_collision: 'failed', profile_outdated: 'failed', download_failed: 'failed', file_corrupt: 'failed', disk_full: 'noRoom', stage_lock_timeout: 'noRoom',
  store_unusable: 'failed', model_in_use: 'failed', link_refused: 'failed',
  // The rest
  request_cancelled: 'interrupted', platform_unsupported: 'failed', closed: 'failed', too_many_open_files: 'failed', invariant_broken: 'failed', internal: 'failed',
};

export function exitCodeOf({ code }: LeaseholdError): number {
  return exitCodes[statusOf[code]];
}
