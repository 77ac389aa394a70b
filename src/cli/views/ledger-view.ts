/** The whole ledger as `leasehold ps` draws it. Pure: the same state and width always give the same lines. */
import type { LeaseView, ProcessView, WaiterView } from '../../orchestrator/index.js';
import type { LedgerState, LoopBlocked } from '../../orchestrator/types.js';
import type { Palette } from '../terminal/colour.js';
import { formatBytes, formatMs } from '../terminal/size-format.js';
import { renderTable, type Column } from '../terminal/table.js';
import { wrap } from '../terminal/width.js';
import { renderCard, renderMemory } from './card-view.js';
import { shortDevice, shortGeneration, type Names } from './names.js';

export interface LedgerViewOptions {
  readonly names: Names;
  readonly columns: number;
  /** How wide tables may be. */
  readonly tableColumns: number;
  readonly palette: Palette;
}

export function renderLedger(state: LedgerState, options: LedgerViewOptions): string[] {
  const { names, columns, tableColumns, palette } = options;
  const blocks = [
    ...state.cards.map((card) => renderCard(card, state.leases, names, columns, palette)),
    ...(state.host === null ? [] : [renderMemory(state.host, state.leases, names, columns, palette)]),
    leases(state, options),
    waiting(state, options),
    processes(state, options),
    [palette.dim(`broker pid ${state.broker.pid}  ${state.broker.socket}`), ...blockedText(state.broker.loopBlocked).map((text) => palette.yellow(`  its own ${text}`))],
  ];
  return blocks.filter((block) => block.length > 0).flatMap((block, index) => (index === 0 ? block : ['', ...block])).flatMap((line) => wrap(line, tableColumns, 2));
}

/** A column for the card only where there are several: one card says it above. */
function cardColumn(state: LedgerState): readonly Column[] {
  return state.cards.length > 1 ? [{ title: 'CARD', shrinkTo: 8, keeps: 'ends' }] : [];
}

/** What each process has of the machine's memory, where that is leased. */
function memoryColumn(state: LedgerState): readonly Column[] {
  return state.host === null ? [] : [{ title: 'RAM', align: 'right' }];
}

function memoryCell(state: LedgerState, { memoryBytes }: ProcessView): readonly string[] {
  return state.host === null ? [] : [formatBytes(memoryBytes)];
}

function cardCell(state: LedgerState, device: string): readonly string[] {
  return state.cards.length > 1 ? [shortDevice(device)] : [];
}

/** Of its card; of the machine's memory where it holds nothing of a card: a model on the CPU, or a parked one. */
export function chargedText({ chargedBytes, hostChargedBytes }: Pick<LeaseView, 'chargedBytes' | 'hostChargedBytes'>): string {
  return chargedBytes === 0 && hostChargedBytes !== null && hostChargedBytes > 0 ? `${formatBytes(hostChargedBytes)} of memory` : formatBytes(chargedBytes);
}

function leases(state: LedgerState, { names, tableColumns, palette }: LedgerViewOptions): string[] {
  if (state.leases.length === 0) return [palette.dim('No model is loaded.')];
  const heads: readonly Column[] = [
    { title: 'MODEL', shrinkTo: 12, keeps: 'ends' }, ...cardColumn(state), { title: 'STATE' }, { title: 'CHARGED', align: 'right' },
    { title: 'RESIDENT', align: 'right' }, { title: 'CALLS', align: 'right' }, { title: 'IDLE', align: 'right' }, { title: 'BY' },
  ];
  const rows = state.leases.map((lease) => [
    names.model(lease.model), ...cardCell(state, lease.device), leaseState(lease, state.leases), chargedText(lease),
    formatBytes(lease.residentBytes), String(lease.inFlight), lease.inFlight > 0 ? '-' : formatMs(lease.idleMs), shortGeneration(lease.generation),
  ]);
  return renderTable(heads, rows, tableColumns, palette);
}

/** `24 of 36 layers`, the others being left to the CPU. */
export function layersText({ onCard, total }: NonNullable<LeaseView['layers']>): string {
  return `${String(onCard)} of ${String(total)} layers`;
}

function leaseState(lease: LeaseView, all: readonly LeaseView[]): string {
  const together = lease.gang === null ? [] : all.filter(({ gang, generation, model }) => gang === lease.gang && generation === lease.generation && model === lease.model);
  return [
    lease.state,
    ...(lease.leavingMs === null ? [] : [`${lease.state === 'releasing' ? 'said so' : 'asked to leave'} ${formatMs(lease.leavingMs)} ago`]),
    ...(lease.pinned ? ['pinned'] : []),
    ...(together.length > 1 ? [`${String(together.indexOf(lease) + 1)} of ${String(together.length)}`] : []),
    ...(lease.layers === null ? [] : [layersText(lease.layers)]),
    ...(lease.misplacedOn === null ? [] : [`its bytes are on ${shortDevice(lease.misplacedOn)}`]),
    ...(lease.hostBytes > 0 ? [`${formatBytes(lease.hostBytes)} in RAM`] : []),
  ].join(', ');
}

function waiting(state: LedgerState, { names, columns, tableColumns, palette }: LedgerViewOptions): string[] {
  if (state.waiting.length === 0) return [];
  const heads: readonly Column[] = [
    { title: 'WAITING', shrinkTo: 12, keeps: 'ends' }, ...cardColumn(state), { title: 'BEFORE', align: 'right' }, { title: 'CLASS' }, { title: 'NEEDS', align: 'right' },
    { title: 'HELD', align: 'right' }, { title: 'SINCE', align: 'right' },
  ];
  const rows = state.waiting.map((waiter: WaiterView) => [
    names.model(waiter.model), ...cardCell(state, waiter.device), String(waiter.position), waiter.class, needs(waiter),
    formatBytes(waiter.holdBytes), formatMs(waiter.waitedMs),
  ]);
  // Why it waits is what one looks for here, and no column has room for a sentence.
  const why = ({ reason, behindOthersMs }: WaiterView): string[] => wrap(names.inText(reason) + (behindOthersMs === null ? '' : `; at most ${formatMs(behindOthersMs)} more behind others`), columns - 2).map((line) => `  ${palette.dim(line)}`);
  return renderTable(heads, rows, tableColumns, palette, (row) => (state.waiting[row] === undefined ? [] : why(state.waiting[row])));
}

/** Of the card, and of the machine's memory where it waits for that too. */
function needs({ needBytes, hostNeedBytes }: WaiterView): string {
  return `${formatBytes(needBytes)}${hostNeedBytes > 0 ? ` + ${formatBytes(hostNeedBytes)} RAM` : ''}`;
}

function processes(state: LedgerState, { tableColumns, palette }: LedgerViewOptions): string[] {
  const heads: readonly Column[] = [
    { title: 'PROCESS' }, { title: 'ROLE' }, { title: 'ENGINE', shrinkTo: 6 }, { title: 'STATE' }, { title: 'PID', align: 'right' },
    { title: 'THREADS', align: 'right' }, { title: 'FLOOR', align: 'right' }, ...memoryColumn(state), { title: 'CARDS', shrinkTo: 8, keeps: 'ends' },
  ];
  const shown = state.processes.filter(({ role }) => role !== 'client');
  return renderTable(heads, shown.map((process) => processRow(state, process)), tableColumns, palette);
}

function blockedText(blocked: LoopBlocked | null | undefined): readonly string[] {
  return blocked === null || blocked === undefined ? [] : [`loop blocked for ${formatMs(blocked.blockedMs)} until ${formatMs(blocked.agoMs)} ago`];
}

function processRow(state: LedgerState, process: ProcessView): string[] {
  const worker = state.workers.find(({ generation }) => generation === process.generation);
  const holder = state.holders.find(({ generation }) => generation === process.generation);
  return [
    shortGeneration(process.generation), process.role, process.engine ?? '-', [process.state, ...blockedText(worker?.loopBlocked)].join(', '), String((worker ?? holder)?.pid ?? '-'),
    String(worker?.threads ?? '-'), formatBytes(process.floorBytes), ...memoryCell(state, process), process.devices.map(shortDevice).join(', '),
  ];
}
