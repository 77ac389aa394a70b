/** `leasehold models`: what can be asked for, by the running broker or, without one, by the configuration here. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { LedgerState, ServedModel } from '../../orchestrator/types.js';
import { withOrchestrator, type CommandContext } from '../context.js';
import { exitCodeOf, exitCodes } from '../exit-codes.js';
import { reportError, writeJson, writeLine } from '../report.js';
import { renderTable, tableColumns } from '../terminal/table.js';
import { chargedText, layersText } from '../views/ledger-view.js';
import { copiesIn } from './copies.js';

export async function models(context: CommandContext, _args: readonly unknown[] = [], options: { readonly pulled?: boolean } = {}): Promise<number> {
  if (options.pulled === true) return (await import('./pulled.js')).pulled(context);
  try {
    await withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => { show(context, orchestrator.models, await orchestrator.ledger()); });
  } catch (error) {
    if (!(error instanceof LeaseholdError) || exitCodeOf(error) !== exitCodes.noBroker) throw error;
    const { servedModels } = await import('../../orchestrator/index.js');
    const config = await context.config();
    const unusable = new Map<string, LeaseholdError>();
    show(context, await servedModels({ ...config.options, onUnusable: (model, why) => { unusable.set(model, why); } }), null);
    for (const why of unusable.values()) reportError(context.io, context.errorPalette, config.atItsPlace(why), false);
  }
  return exitCodes.done;
}

function show({ io, json, palette }: CommandContext, served: readonly ServedModel[], ledger: LedgerState | null): void {
  const leases = (key: string) => ledger?.leases.filter(({ model }) => model === key) ?? [];
  if (json) {
    for (const model of served) writeJson(io, { ...model, alsoLoaded: ledger === null ? [] : copiesIn(ledger, model.key, served).alsoLoaded, leases: leases(model.key).map(({ device, state, chargedBytes, pinned, layers }) => ({ device, state, chargedBytes, pinned, layers })) });
    return;
  }
  const rows = served.map(({ name, aliases, engine, contextTokens, source, key }) => {
    const held = leases(key).map((lease) => `${lease.state}, ${chargedText(lease)}${lease.layers === null ? '' : `, ${layersText(lease.layers)}`}${lease.pinned ? ', pinned' : ''}`);
    const copies = ledger === null ? [] : copiesIn(ledger, key, served).alsoLoaded.map((copy) => `another copy: ${copy}`);
    return [name, aliases.join(', '), engine, String(contextTokens), [...held, ...copies].join('; ') || '-', source];
  });
  const heads = [
    { title: 'MODEL', shrinkTo: 12, keeps: 'ends' }, { title: 'ALIASES', shrinkTo: 7, keeps: 'ends' }, { title: 'ENGINE' }, { title: 'CONTEXT', align: 'right' }, { title: 'LOADED' }, { title: 'SOURCE', shrinkTo: 10, keeps: 'end' },
  ] as const;
  for (const line of renderTable(heads, rows, tableColumns(io.stdout), palette)) writeLine(io, line);
  if (ledger === null) writeLine(io, palette.dim('No broker runs: these are the models of the configuration here and those that ship.'));
}
