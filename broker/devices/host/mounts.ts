/** What is mounted where, by /proc/self/mountinfo. */
export interface Mount {
  /** The part of the file system that is mounted. */
  readonly root: string;
  readonly folder: string;
  readonly type: string;
  readonly options: readonly string[];
  readonly superOptions: readonly string[];
}

/** `36 35 98:0 /root /mount/point options … - type source superoptions` */
export function parseMounts(mountinfo: string): readonly Mount[] {
  return mountinfo.split('\n').flatMap((line): Mount[] => {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , root, folder, options = ''] = left.split(' ');
    const [type = '', , superOptions = ''] = right.split(' ');
    if (root === undefined || folder === undefined) return [];
    return [{ root: unescaped(root), folder: unescaped(folder), type, options: options.split(','), superOptions: superOptions.split(',') }];
  });
}

/** Blanks and backslashes stand in mountinfo as octal. */
function unescaped(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));
}
