/** Names of files as a repository or an index gives them: one rule, whatever the system (B160, B173). */

const reserved = /^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$/i;
const segmentsMax = 16;
const segmentBytesMax = 255;

/** What is wrong with a relative name, segments joined by `/`; null when it stays below its folder on every system. */
export function fileNameFault(name: string): string | null {
  if (name === '') return 'it is empty';
  if (/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/.test(name)) return 'it has a control character';
  if (name.includes('\\')) return 'it has a backslash';
  if (/[:*?"<>|%#]/.test(name)) return 'it has one of : * ? " < > | % #';
  if (name.startsWith('/')) return 'it is absolute';
  const segments = name.split('/');
  if (segments.length > segmentsMax) return `it has more than ${String(segmentsMax)} parts`;
  for (const segment of segments) {
    if (segment === '') return 'it has an empty part';
    if (segment === '.' || segment === '..') return `it has the part ${segment}`;
    if (/[. ]$/.test(segment)) return 'a part of it ends in a dot or a space';
    if (reserved.test(segment)) return `${segment} is a name that Windows keeps for itself`;
    if (Buffer.byteLength(segment) > segmentBytesMax) return `a part of it has more than ${String(segmentBytesMax)} bytes`;
  }
  return null;
}
