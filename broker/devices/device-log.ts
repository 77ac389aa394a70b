/** Where the devices' parts tell what they met; the shell passes it on to its log. */
export type DeviceLog = (
  level: 'debug' | 'info' | 'warn' | 'error',
  message: string,
  fields: Readonly<Record<string, string | number | null>>,
) => void;

/** For callers that have no log. */
export const silentLog: DeviceLog = () => undefined;
