/** `leasehold doctor`: looks whether this machine is fit, and says what to mend. */
import { LeaseholdError } from '../../../protocol/index.js';
import { allChecks, diagnose, examineApart, groupOf, groups, type ApartOptions, type Check, type Finding } from '../../doctor/index.js';
import { version } from '../../version.js';
import { stoppable, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatMs } from '../terminal/size-format.js';
import { renderFinding, renderVerdict } from '../views/doctor-view.js';

interface DoctorOptions {
  /** False with --no-engines. */
  readonly engines?: boolean;
}

/** How checks are carried out; another way in tests. */
export type Examine = (options: ApartOptions) => Promise<void>;

export async function doctor(context: CommandContext, args: readonly unknown[], options: DoctorOptions, examine: Examine = examineApart): Promise<number> {
  const [wanted] = args as [readonly string[]];
  const checks = chosen(wanted, options.engines !== false);
  const { io, json, palette } = context;
  const style = { columns: io.stdout.columns, palette };
  const status = json || !io.stderr.canRedraw ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
  const beganMs = performance.now();
  return stoppable(context, async (signal) => {
    const telling = new Telling(checks, (group, findings) => {
      if (json) return;
      status.clear();
      if (group !== null) writeLine(io, `\n${palette.bold(group)}`);
      for (const finding of findings) for (const line of renderFinding(finding, style)) writeLine(io, line);
    });
    if (!json) writeLine(io, `${palette.bold('Leasehold')} ${version()} ${palette.dim('looks at this machine; it changes nothing')}`);
    await examine({
      checks, flags: context.options, signal,
      listener: {
        onBegun: (id) => { telling.begun(id, (title) => { status.show(`looking: ${title}`, null); }); },
        onFound: (id, findings) => { telling.found(id, findings); },
      },
    });
    status.clear();
    signal.throwIfAborted();
    const diagnosis = diagnose(telling.findings);
    if (json) writeJson(io, { ...diagnosis });
    else writeLine(io, `\n${renderVerdict(diagnosis, formatMs(performance.now() - beganMs), style)}`);
    return diagnosis.verdict === 'problem' ? exitCodes.failed : exitCodes.done;
  });
}

function chosen(wanted: readonly string[], engines: boolean): readonly Check[] {
  const unknown = wanted.find((group) => !groups.has(group));
  if (unknown !== undefined) throw new LeaseholdError('input_invalid', { field: 'group', reason: `must be one of ${[...groups.keys()].join(', ')}, not ${JSON.stringify(unknown)}` }, { help: '`leasehold doctor` looks at all of them; `leasehold doctor cards rungs` at two.' });
  const asked = wanted.length === 0 ? allChecks : allChecks.filter(({ id }) => wanted.includes(groupOf(id)));
  return engines ? asked : asked.filter(({ startsEngine }) => startsEngine !== true);
}

/** Findings come as they are made and are told in the order of the checks. */
class Telling {
  readonly #checks: readonly Check[];
  readonly #tell: (group: string | null, findings: readonly Finding[]) => void;
  readonly #found = new Map<string, readonly Finding[]>();
  #told = 0;
  #group: string | null = null;

  /** `tell` is given the name of a group where one begins. */
  constructor(checks: readonly Check[], tell: (group: string | null, findings: readonly Finding[]) => void) {
    this.#checks = checks;
    this.#tell = tell;
  }

  get findings(): readonly Finding[] {
    return this.#checks.flatMap(({ id }) => this.#found.get(id) ?? []);
  }

  begun(id: string, show: (title: string) => void): void {
    const check = this.#checks.find((each) => each.id === id);
    if (check !== undefined) show(check.title);
  }

  found(id: string, findings: readonly Finding[]): void {
    this.#found.set(id, findings);
    for (let check = this.#checks[this.#told]; check !== undefined; check = this.#checks[this.#told]) {
      const next = this.#found.get(check.id);
      if (next === undefined) return;
      this.#told += 1;
      const group = groupOf(check.id);
      this.#tell(group === this.#group ? null : groups.get(group) ?? group, next);
      this.#group = group;
    }
  }
}
