/** What llama.cpp's log says of an allocation that was refused. */
const bytesPerMebibyte = 1024 * 1024;

/** The bytes of an allocation that the log says was refused; null when the log tells of no such thing. */
export function wantedBytesIn(lines: readonly string[]): number | null {
  if (!lines.some((line) => /out of memory|failed to allocate|unable to allocate|ErrorOutOfDeviceMemory|alloc.*failed/i.test(line))) return null;
  for (const line of lines) {
    const mebibytes = /allocating ([\d.]+) MiB/i.exec(line)?.[1];
    if (mebibytes !== undefined) return Math.ceil(Number(mebibytes) * bytesPerMebibyte);
    const bytes = /(?:of size|buffer of size|allocate) (\d+)/i.exec(line)?.[1];
    if (bytes !== undefined) return Number(bytes);
  }
  return 0;
}
