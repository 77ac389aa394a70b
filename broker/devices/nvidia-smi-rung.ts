/** The second rung: the nvidia-smi tool, one run at a time, for every card at once. */
import { defaultLimits, durationText } from '../../protocol/index.js';
import { cleanEnvironment } from '../supervisor/environment.js';
import { runBounded, type BoundedRun, type RunOutcome } from './bounded-run.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import { parseSmiRows, type SmiRow } from './nvidia-smi-csv.js';
import { devicePlatform, isWddm, nvidiaSmiCommand, type DevicePlatform } from './platform.js';
import type { CardDescription, Discovery, Reading, Rung, UnmeasuredCard } from './types.js';
import { nvidiaVisibility } from './visibility.js';

export interface NvidiaSmiRungOptions {
  /** Default: what the platform has. */
  readonly command?: string;
  readonly probeTimeoutMs?: number;
  readonly platform?: DevicePlatform;
  readonly environment?: Readonly<Record<string, string>>;
  readonly nowUs?: () => number;
}

const outputBytesMax = 256 * 1024;
/** The memory first: a reading and a discovery share their parser. */
const query = 'uuid,memory.total,memory.used,display_active,mig.mode.current,driver_version,name';

interface Answer {
  readonly takenAtUs: number;
  readonly outcome: RunOutcome;
  readonly rows: ReadonlyMap<string, SmiRow>;
}

export function createNvidiaSmiRung(options: NvidiaSmiRungOptions = {}): Rung {
  const platform = options.platform ?? devicePlatform();
  const command = options.command ?? nvidiaSmiCommand(platform);
  const nowUs = options.nowUs ?? monotonicUs;
  const timeoutMs = options.probeTimeoutMs ?? defaultLimits.probeTimeoutMs;
  let inFlight: Promise<Answer> | null = null;
  let last: BoundedRun | null = null;
  let closed = false;

  async function run(): Promise<Answer> {
    const takenAtUs = nowUs();
    if (closed || command === null) return nothing(takenAtUs, { kind: 'not_started', reason: closed ? 'closed' : 'there is no nvidia-smi on this platform' });
    // A run that survived its SIGKILL hangs in the driver, and the next one would join it there.
    if (last?.alive() === true) return nothing(takenAtUs, { kind: 'timed_out' });
    last = runBounded(command, [`--query-gpu=${query}`, '--format=csv,noheader,nounits'], cleanEnvironment(process.env, options.environment ?? {}), { timeoutMs, outputBytesMax });
    const outcome = await last.outcome;
    return { takenAtUs, outcome, rows: outcome.kind === 'ended' ? parseSmiRows(outcome.stdout) : new Map<string, SmiRow>() };
  }

  /** Whoever asks during a run shares it; `takenAtUs` tells when it began. */
  function ask(): Promise<Answer> {
    inFlight ??= run().finally(() => {
      inFlight = null;
    });
    return inFlight;
  }

  return {
    truth: 'nvidia-smi',
    async discover(): Promise<Discovery> {
      const answer = await ask();
      if (answer.rows.size === 0) return { unavailable: failureText(answer.outcome, timeoutMs) };
      return describe([...answer.rows.values()], platform);
    },
    async read(device): Promise<Reading> {
      const answer = await ask();
      const row = answer.rows.get(device);
      // A row that is there counts even when the run failed: one lost card must not hide the others.
      return row === undefined ? absent(device, answer, timeoutMs) : readingOf(device, row, answer.takenAtUs);
    },
    async close(): Promise<void> {
      closed = true;
      await inFlight;
    },
  };
}

function nothing(takenAtUs: number, outcome: RunOutcome): Answer {
  return { takenAtUs, outcome, rows: new Map() };
}

function absent(device: string, { takenAtUs, outcome, rows }: Answer, timeoutMs: number): Reading {
  const missing = { kind: 'missing', device, takenAtUs, reason: failureText(outcome, timeoutMs) } as const;
  if (outcome.kind === 'timed_out') return { ...missing, reading: 'timed_out' };
  // A clean end without a word about this card is no failure: it tells nothing, unless it tells of others.
  if (outcome.kind !== 'ended' || outcome.exitCode !== 0) return { ...missing, reading: 'failed' };
  return { ...missing, reading: 'unknown', ...(rows.size > 0 ? { lost: true } : {}) };
}

function readingOf(device: string, { total, used, others }: SmiRow, takenAtUs: number): Reading {
  if (others[1] === 'Enabled') return { kind: 'missing', device, takenAtUs, reading: 'unsupported', reason: 'it is in MIG mode now: its slices are cards of their own', lost: true };
  for (const figure of [total, used]) {
    if (figure.kind === 'missing') return { kind: 'missing', device, takenAtUs, reading: figure.reading, reason: figure.reason, ...(figure.lost === true ? { lost: true } : {}) };
  }
  const totalBytes = total.kind === 'bytes' ? total.bytes : 0;
  const usedBytes = used.kind === 'bytes' ? used.bytes : 0;
  if (totalBytes === 0 || usedBytes > totalBytes) {
    return { kind: 'missing', device, takenAtUs, reading: 'unknown', reason: `nvidia-smi says ${usedBytes} of ${totalBytes} bytes, which cannot be` };
  }
  return { kind: 'read', device, takenAtUs, usedBytes, totalBytes, truth: 'nvidia-smi', processes: null };
}

function describe(rows: readonly SmiRow[], platform: DevicePlatform): Discovery {
  const cards: CardDescription[] = [];
  const unmeasured: UnmeasuredCard[] = [];
  for (const [index, { device, total, others }] of rows.entries()) {
    const [displayActive, migMode, , ...nameParts] = others;
    const name = nameParts.length === 0 ? device : nameParts.join(', ');
    const visibility = nvidiaVisibility(device);
    const counted = { maker: 'nvidia', index } as const;
    // CUDA shows a card in MIG mode by its slices alone, and this query does not list them.
    if (migMode === 'Enabled') unmeasured.push({ device, name, visibility, counted, reason: 'in MIG mode; nvidia-smi does not list its slices here' });
    else if (total.kind === 'missing') unmeasured.push({ device, name, visibility, counted, reason: total.reason });
    else cards.push({ device, name, kind: 'gpu', totalBytes: total.bytes, confirms: 'total', display: displayActive === 'Enabled' || isWddm(platform), floorBytes: null, visibility, counted });
  }
  return { cards, unmeasured, driver: rows[0]?.others[2] ?? 'unknown' };
}

function failureText(outcome: RunOutcome, timeoutMs: number): string {
  switch (outcome.kind) {
    case 'timed_out':
      return `nvidia-smi gave no answer within ${durationText(timeoutMs)}`;
    case 'too_much_output':
      return `nvidia-smi wrote more than ${outputBytesMax} bytes`;
    case 'not_started':
      return `nvidia-smi could not be started: ${outcome.reason}`;
    case 'ended': {
      const said = (outcome.stderr.trim() || outcome.stdout.trim()).split('\n')[0]?.slice(0, 200) ?? '';
      const end = outcome.signal ?? `exit code ${outcome.exitCode ?? '?'}`;
      return said === '' ? `nvidia-smi printed no card (${end})` : `nvidia-smi printed no such card (${end}): ${said}`;
    }
  }
}
