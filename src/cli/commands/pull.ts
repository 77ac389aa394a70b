/** `leasehold pull`: resolves a model on a hub, and brings everything that it needs here. */
import { LeaseholdError } from '../../../protocol/index.js';
import { ggufChoices } from '../../models/inspect/gguf.js';
import type { Inspection } from '../../models/inspect/inspect.js';
import type { Pulled } from '../../models/models.js';
import type { Backend } from '../../models/policy/policy.js';
import { referenceText } from '../../models/reference.js';
import type { StagingProgress } from '../../models/staging/progress.js';
import { stoppableOnceConfigured, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes, formatCount, formatMs } from '../terminal/size-format.js';
import { writeAbove } from '../terminal/standing.js';
import { plainLine } from '../terminal/width.js';
import { pullable } from './pullable.js';
import { withModels } from './with-models.js';

interface PullOptions {
  readonly backend?: Backend;
  readonly pin?: readonly string[];
  readonly quiet?: boolean;
  /** False with --no-projector. */
  readonly projector?: boolean;
}

export async function pull(context: CommandContext, args: readonly unknown[], options: PullOptions): Promise<number> {
  const [written] = args as [string];
  const pins = pinsOf(options.pin ?? []);
  const { io, json } = context;
  return stoppableOnceConfigured(context, async (signal) => withModels(context, async (models) => {
    const reference = pullable(written, (await context.config()).options);
    const status = json || options.quiet === true ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
    try {
      status.show(`asking the hub for ${reference}`, null);
      const pulled = await models.pull(reference, {
        signal, pins, backend: options.backend ?? null, projector: options.projector ?? true,
        onInspected(inspection) {
          const told = engineNote(inspection);
          if (told === null) return;
          if (json) writeJson(io, { event: 'note', code: 'engine_unknown', engine: inspection.profile.backend, text: told });
          else writeAbove(io.stderr, context.errorPalette.yellow(plainLine(told)));
        },
        onProgress(progress) {
          if (json) writeJson(io, { event: 'progress', ...progress });
          else status.show(progressText(progress), progress.bytes.total === 0 ? null : progress.bytes.done / progress.bytes.total);
        },
      });
      status.clear();
      if (json) writeJson(io, { event: 'end', ...resultOf(pulled) });
      else for (const line of summary(pulled)) writeLine(io, plainLine(line));
      for (const refused of pulled.refused) writeAbove(io.stderr, context.errorPalette.yellow(plainLine(refused)));
      return exitCodes.done;
    } finally {
      status.clear();
    }
  }));
}

/** What `run` would say of it only once it is here: that nothing in this installation loads it. */
function engineNote({ profile, reference, repository }: Inspection): string | null {
  if (profile.backend === 'llama_cpp') return null;
  const [gguf] = ggufChoices(repository);
  const selection = gguf === undefined ? null : gguf.quantization ?? gguf.files[0]?.path ?? null;
  const instead = selection === null ? 'a GGUF of it, which other repositories may have: leasehold pull owner/name-GGUF:Q4_K_M' : `leasehold pull ${referenceText({ ...reference, selection })}`;
  return `It is for ${profile.backend}, an engine that is not here: it is pulled, and \`leasehold run\` will refuse it. What runs here is ${instead}.`;
}

/** `FILE=SHA256`. */
function pinsOf(given: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(given.map((text) => {
    const [, file, hash] = /^(.+)=([0-9a-fA-F]{64})$/.exec(text) ?? [];
    if (file === undefined || hash === undefined) throw new LeaseholdError('input_invalid', { field: '--pin', reason: `${JSON.stringify(text)} is not FILE=SHA256` });
    return [file, hash];
  }));
}

export function progressText({ stage, text, files, bytes, bytesPerSecond }: StagingProgress): string {
  if (stage !== 'download') return text;
  const rate = bytesPerSecond === null ? '' : `, ${formatBytes(bytesPerSecond)}/s`;
  return `${text}: ${formatBytes(bytes.done)} of ${formatBytes(bytes.total)}, ${String(files.done)} of ${formatCount(files.total, 'file')}${rate}`;
}

/** Names as other programs of this kind have them. */
function resultOf({ profile, ...pulled }: Pulled): Readonly<Record<string, unknown>> {
  return {
    requested_reference: pulled.reference, profile_id: profile.id, repository: profile.repository, revision: profile.revision, backend: profile.backend,
    quantization_method: profile.quantization_method, artifact_bytes: profile.artifact_bytes, manifest_path: pulled.manifestPath, manifest_created: pulled.manifestCreated,
    security_scan_complete: pulled.securityScanComplete, projector: pulled.projector?.path ?? null, path: pulled.path, downloaded: pulled.downloaded, downloaded_bytes: pulled.downloadedBytes, reused_bytes: pulled.reusedBytes, kept_at: pulled.keptAt,
    resolve_elapsed_seconds: pulled.resolveMs / 1_000, elapsed_seconds: pulled.elapsedMs / 1_000,
  };
}

function summary({ profile, reference, downloadedBytes, reusedBytes, elapsedMs, securityScanComplete, projector, keptAt }: Pulled): readonly string[] {
  const how = [
    ...downloadedBytes > 0 ? [`${formatBytes(downloadedBytes)} downloaded in ${formatMs(elapsedMs)}`] : [],
    ...reusedBytes > 0 ? [`${formatBytes(reusedBytes)} taken from what other programs had`] : [],
  ];
  return [
    `${reference} is here: ${profile.architecture}, ${formatBytes(profile.artifact_bytes)} of weights for ${profile.backend}; ${how.join(', ') || 'it was already'}.`,
    `  commit  ${profile.revision}`,
    `  profile ${profile.id}`,
    ...projector === null ? [] : [`  projector ${projector.path}${projector.sizeBytes === null ? '' : ` (${formatBytes(projector.sizeBytes)})`}, for engines that see or hear: llama.cpp here reads text alone. --no-projector leaves it out.`],
    ...keptAt === null ? [] : [`  A file of it that was here was wrong, and is kept at ${keptAt} until room is needed.`],
    ...securityScanComplete ? [] : ['  The hub had not finished its security scan of it.'],
  ];
}
