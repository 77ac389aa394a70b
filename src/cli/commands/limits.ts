/** `leasehold limits`: every limit with its value here, its default and what it bounds, from the schema that checks it. */
import { defaultLimits, limitMinimum, limitText, type LimitName } from '../../../protocol/index.js';
import { configSchema } from '../../config/schema-file.js';
import type { CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { pad, wrap } from '../terminal/width.js';

export async function limits(context: CommandContext): Promise<number> {
  const { io, json, palette } = context;
  const { options } = await context.config();
  const about = configSchema().properties?.['limits']?.properties ?? {};
  const names = Object.keys(defaultLimits) as LimitName[];
  const width = Math.max(...names.map((name) => name.length));
  for (const name of names) {
    const [value, text] = [options.limits?.[name] ?? defaultLimits[name], about[name]?.description ?? ''];
    if (json) {
      writeJson(io, { limit: name, value, default: defaultLimits[name], minimum: limitMinimum(name), about: text });
      continue;
    }
    const set = value === defaultLimits[name] ? '' : palette.yellow(`  (default ${limitText(name, defaultLimits[name])})`);
    writeLine(io, `${palette.bold(pad(name, width))}  ${limitText(name, value)}${set}`);
    for (const line of wrap(text, io.stdout.columns - 4)) writeLine(io, `    ${palette.dim(line)}`);
  }
  return exitCodes.done;
}
