// The limits that a peer meets on the wire, with their defaults.

/** Limits that both ends of a connection must know of. The others are the broker's own affair. */
const onTheWire = [
  'frameBytesMax', 'preAuthFrameBytesMax', 'helloTimeoutMs', 'preAuthConnectionsMax', 'sessionsMax', 'openRequestsPerSessionMax', 'outgoingBytesMax',
  'heldTotalBytesMax', 'flushTimeoutMs', 'peerLogBytesPerSecondMax', 'spawnsAtOnceMax', 'heartbeatIntervalMs', 'heartbeatMissesMax', 'stateCheckMs', 'spawnTimeoutMs', 'terminateGraceMs', 'grantConfirmMs', 'loadTimeoutMs', 'commandAnswerMs', 'moveTimeoutMs',
  'drainTimeoutMs', 'drainBatchMax', 'requestDeadlineMs', 'hostGrowthBytesMax', 'creditTokensMax', 'queuedCallsPerModelMax', 'unreadStreamMs', 'silentStreamMs', 'residencyFlushMs', 'ticketTtlMs',
  'cancelWithinMs', 'stopTimeoutMs',
];

export function limitsTable(limits, comments) {
  const rows = onTheWire.map((name) => `| \`${name}\` | ${limits[name].toLocaleString('en-US')} | ${comments.get(`defaultLimits.${name}`) ?? ''} |`);
  return ['| limit | default | meaning |', '|---|---|---|', ...rows].join('\n');
}
