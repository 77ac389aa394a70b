/** `leasehold models --pulled | verify | rm`: what is staged, whether it is still what it was, and away with it. */
import { realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import type { Models } from '../../models/models.js';
import type { StoredModel } from '../../models/store/store.js';
import type { Verdict } from '../../models/store/upkeep.js';
import { modelKeyOf } from '../../../protocol/node/index.js';
import { stoppableOnceConfigured, withOrchestrator, type CommandContext } from '../context.js';
import { exitCodeOf, exitCodes } from '../exit-codes.js';
import { reportError, writeJson, writeLine } from '../report.js';
import type { Palette } from '../terminal/colour.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes, formatCount } from '../terminal/size-format.js';
import { renderTable, tableColumns, type Column } from '../terminal/table.js';
import { pullable } from './pullable.js';
import { withModels } from './with-models.js';

const columns: readonly Column[] = [
  { title: 'MODEL', shrinkTo: 16, keeps: 'end' }, { title: 'FOR' }, { title: 'QUANT' }, { title: 'WEIGHTS', align: 'right' }, { title: 'CONTEXT', align: 'right' }, { title: 'COMMIT' }, { title: 'STATE' },
];
/** Stands there where a model has one. */
const projectorColumn: Column = { title: 'PROJECTOR', shrinkTo: 9, keeps: 'end' };

export async function pulled(context: CommandContext): Promise<number> {
  const { io, json, palette } = context;
  return withModels(context, async (store) => {
    const faults: LeaseholdError[] = [];
    const found = await store.list((error) => { faults.push(error); });
    if (json) for (const model of found) writeJson(io, { ...viewOf(model) });
    else if (found.length === 0) writeLine(io, 'Nothing has been pulled. `leasehold pull owner/name` brings a model here.');
    else for (const line of tableOf(found, tableColumns(io.stdout), palette)) writeLine(io, line);
    for (const fault of faults) reportError(io, context.errorPalette, fault, json);
    return faults.length === 0 ? exitCodes.done : exitCodes.failed;
  });
}

export async function verify(context: CommandContext, args: readonly unknown[]): Promise<number> {
  const [reference] = args as [string | undefined];
  const { io, json } = context;
  return stoppableOnceConfigured(context, async (signal) => withModels(context, async (store) => {
    const faults: LeaseholdError[] = [];
    const wanted = reference === undefined ? await store.list((error) => { faults.push(error); }) : [await findPulled(context, store, reference)];
    let wrong = 0;
    for (const model of wanted) {
      try {
        wrong += tellVerdicts(context, model, await verdictsOf(context, store, model, signal));
      } catch (error) {
        // What cannot be checked, one that was never staged to the end among it, keeps no other from being checked.
        if (!(error instanceof LeaseholdError) || signal.aborted || reference !== undefined) throw error;
        faults.push(error);
      }
    }
    for (const fault of faults) reportError(io, context.errorPalette, fault, json);
    if (!json && wanted.length + faults.length === 0) writeLine(io, 'Nothing has been pulled.');
    return wrong + faults.length === 0 ? exitCodes.done : exitCodes.failed;
  }));
}

async function verdictsOf({ io, json, errorPalette }: CommandContext, store: Models, model: StoredModel, signal: AbortSignal): Promise<readonly Verdict[]> {
  const status = json ? noStatusLine : createStatusLine(io.stderr, errorPalette);
  try {
    return await store.verify(model, signal, (path) => { status.show(`checking ${path}`, null); });
  } finally {
    status.clear();
  }
}

/** How many of its files are not as they were staged. */
function tellVerdicts({ io, json }: CommandContext, { manifest }: StoredModel, verdicts: readonly Verdict[]): number {
  const bad = verdicts.filter(({ fault }) => fault !== null);
  const name = manifest.requested_reference;
  if (json) {
    writeJson(io, { model: name, profile_id: manifest.profile.id, files: verdicts.map(({ path, sizeBytes, fault, keptAt }) => ({ path, size_bytes: sizeBytes, fault, kept_at: keptAt })) });
    return bad.length;
  }
  const files = formatCount(bad.length === 0 ? verdicts.length : bad.length, 'file');
  writeLine(io, bad.length === 0 ? `${name}: ${files}, as they were pulled.` : `${name}: ${files} missing or taken away; \`leasehold pull ${name}\` fetches them again.`);
  for (const { path, fault, keptAt } of bad) writeLine(io, `  ${path}: ${String(fault)}${keptAt === null ? '' : `; kept at ${keptAt} until the next that is wrong, or until room is needed`}`);
  return bad.length;
}

export async function remove(context: CommandContext, args: readonly unknown[]): Promise<number> {
  const [reference] = args as [string];
  const { io, json } = context;
  return stoppableOnceConfigured(context, async (signal) => withModels(context, async (store) => {
    const model = await findPulled(context, store, reference);
    const freedBytes = await store.remove(model, await usersOf(context, model), signal);
    const name = model.manifest.requested_reference;
    if (json) writeJson(io, { model: name, profile_id: model.manifest.profile.id, freedBytes });
    else writeLine(io, `${name} removed: ${freedBytes === 0 ? 'nothing became free, its files were gone or another profile needs them' : `${formatBytes(freedBytes)} free again`}.`);
    return exitCodes.done;
  }));
}

async function findPulled({ config }: CommandContext, store: Models, reference: string): Promise<StoredModel> {
  return store.find(pullable(reference, (await config()).options));
}

/** Who has it on a card, as a broker that runs here tells. */
async function usersOf(context: CommandContext, { folder, missing, manifest }: StoredModel): Promise<readonly string[]> {
  // What is not whole here is loaded nowhere.
  if (missing !== null) return [];
  try {
    const inStore = await realpath(folder);
    return await withOrchestrator(context, { broker: 'attach', adjust: (options) => ({ ...options, models: {} }) }, async ({ orchestrator }) => {
      // A broker knows what it was configured with; of what somebody else had it load, only the key.
      const configured = orchestrator.models.filter(({ source }) => source.startsWith(inStore + sep)).map(({ key }) => key);
      const plain = manifest.profile.weight_files.flatMap((file) => [true, false].map((embedding) => modelKeyOf('llama', join(inStore, file), embedding, {}, 1)));
      const inside = new Set([...configured, ...plain]);
      const { leases, waiting } = await orchestrator.ledger();
      return [...leases, ...waiting].filter(({ model }) => inside.has(model)).map(({ model }) => `${model}, of the broker at ${orchestrator.socketPath}`);
    });
  } catch (error) {
    if (error instanceof LeaseholdError && exitCodeOf(error) === exitCodes.noBroker) return [];
    throw error;
  }
}

function viewOf({ manifest: { profile, requested_reference: reference, resolved_at_unix: at }, missing, folder, files }: StoredModel): Readonly<Record<string, unknown>> {
  return {
    model: reference, profile_id: profile.id, repository: profile.repository, revision: profile.revision, backend: profile.backend, architecture: profile.architecture,
    quantization_method: profile.quantization_method, artifact_bytes: profile.artifact_bytes, projector: profile.projector_file === '' ? null : profile.projector_file, max_context_tokens: profile.max_context_tokens, resolved_at_unix: at,
    staged: missing === null, missing, path: folder, files: files.length,
  };
}

function tableOf(found: readonly StoredModel[], width: number, palette: Palette): readonly string[] {
  const projectors = found.map(({ manifest: { profile } }) => profile.projector_file);
  const some = projectors.some((file) => file !== '');
  const rows = found.map((model, index) => [...rowOf(model), ...some ? [projectors[index] === '' ? '-' : projectors[index] ?? '-'] : []]);
  return renderTable(some ? [...columns, projectorColumn] : columns, rows, width, palette);
}

function rowOf({ manifest: { profile, requested_reference: reference }, missing }: StoredModel): readonly string[] {
  return [reference, profile.backend, profile.quantization_method, formatBytes(profile.artifact_bytes), String(profile.max_context_tokens), profile.revision.slice(0, 8), missing === null ? 'pulled' : 'incomplete'];
}
