/**
 * Text cut where a run without a break grows too long. llama.cpp finds the words of a byte-level vocabulary by regular
 * expressions whose engine calls itself for each character of a match: some tens of thousands of letters, spaces or
 * signs in one go (a padded table, Chinese without a line's end) overflow the stack, and the process is gone.
 */

/** Far below what any stack holds, and far above any word. */
const runLengthMax = 2_000;

/** `text` in pieces to be made tokens one by one; in one piece when no run in it is too long. */
export function cutLongRuns(text: string): readonly string[] {
  if (text.length <= runLengthMax) return [text];
  const pieces: string[] = [];
  let [pieceStart, runStart, inSpace] = [0, 0, isSpace(text.charCodeAt(0))];
  for (let at = 1; at < text.length; at++) {
    const space = isSpace(text.charCodeAt(at));
    if (space !== inSpace) [runStart, inSpace] = [at, space];
    if (at - runStart < runLengthMax) continue;
    const cut = space ? at : cutBefore(text, runStart, at);
    pieces.push(text.slice(pieceStart, cut));
    [pieceStart, runStart] = [cut, cut];
  }
  pieces.push(text.slice(pieceStart));
  return pieces;
}

/** The last place in the second half of a run where a sign follows a letter: there every vocabulary parts words, so nothing is changed by it. Else the end. */
function cutBefore(text: string, from: number, to: number): number {
  for (let at = to; at > (from + to) / 2; at--) {
    if (/[\p{P}\p{S}]/u.test(text.charAt(at)) && text.charAt(at) !== '\'' && text.charAt(at) !== '’' && /\p{L}/u.test(text.charAt(at - 1))) return at;
  }
  // Never inside a pair that is one character.
  const isLowHalf = (text.charCodeAt(to) & 0xfc00) === 0xdc00;
  return isLowHalf ? to - 1 : to;
}

/** As Unicode has it. */
function isSpace(code: number): boolean {
  if (code <= 0x20) return code === 0x20 || (code >= 0x09 && code <= 0x0d);
  if (code < 0x1680) return code === 0x85 || code === 0xa0;
  return code === 0x1680 || (code >= 0x2000 && code <= 0x200a) || code === 0x2028 || code === 0x2029 || code === 0x202f || code === 0x205f || code === 0x3000;
}
