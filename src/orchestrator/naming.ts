/** What the broker says, which knows models by their keys, with the names that people gave them beside the keys and in every sentence. */
import type { ExplainRecord, ExplainedVictim } from '../../broker/core/explain.js';
import { told } from '../../broker/shell/index.js';
import type { LeaseView, LedgerView, WaiterView } from '../../broker/core/view.js';
import type { BrokerEvent } from '../client/index.js';
import type { Catalogue } from './catalogue.js';
import type { NamedRecord } from './types.js';

export class Naming {
  readonly #catalogue: Catalogue;

  constructor(catalogue: Catalogue) {
    this.#catalogue = catalogue;
  }

  /** The first name of that key; the key itself where nobody here has named it. */
  name(key: string): string {
    return this.#catalogue.models.find(({ spec }) => spec.key === key)?.name ?? key;
  }

  /** The text with names for keys: of several names of one key `asked`, where it is one of them. */
  inText(text: string, asked: { readonly name: string; readonly spec: { readonly key: string } } | null = null): string {
    if (!text.includes('#')) return text;
    const first = asked === null ? text : text.replaceAll(asked.spec.key, asked.name);
    return this.#catalogue.models.reduce((known, { spec, name }) => (known.includes('#') ? known.replaceAll(spec.key, name) : known), first);
  }

  ledger<State extends Pick<LedgerView, 'leases' | 'waiting'>>(state: State): State & { readonly leases: readonly (LeaseView & { readonly name: string })[]; readonly waiting: readonly (WaiterView & { readonly name: string })[] } {
    return {
      ...state,
      leases: state.leases.map((lease) => ({ ...lease, name: this.name(lease.model) })),
      waiting: state.waiting.map((waiter) => ({ ...waiter, name: this.name(waiter.model), reason: this.inText(waiter.reason) })),
    };
  }

  record(record: ExplainRecord): NamedRecord {
    const named = (victim: ExplainedVictim) => ({ ...victim, name: victim.model === null ? null : this.name(victim.model) });
    return { ...record, name: record.model === null ? null : this.name(record.model), text: this.inText(record.text), victims: record.victims.map(named) };
  }

  data({ data }: BrokerEvent): Readonly<Record<string, unknown>> {
    const { model } = data;
    return { ...told(data, this), ...(typeof model === 'string' ? { name: this.name(model) } : {}) };
  }
}
