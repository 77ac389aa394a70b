/** Tokens of a context as people write them: `4096`, or `4k` for 4 times 1024; in a file as on a command line. */

/** What the wire allows. */
export const contextTokensMax = 16_777_216;

/** Null when it is none, or not from 1 to `contextTokensMax`. */
export function parseContextTokens(given: string | number): number | null {
  const match = /^(\d{1,9})(k?)$/i.exec(String(given));
  if (match === null) return null;
  const tokens = Number(match[1]) * (match[2] === '' ? 1 : 1_024);
  return tokens >= 1 && tokens <= contextTokensMax ? tokens : null;
}
