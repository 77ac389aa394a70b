/** The version of the wire. Both sides of a session speak the same, or the session is refused with `protocol_version`. */
export const protocolVersion = 1;
