/** Runs in a thread of its own: a chat template, which is a stranger's program, and nothing else. */
import { requireTemplateLibrary } from './library.js';
import { TemplateBudget } from './template-budget.js';

export interface TemplateTask {
  readonly source: string;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** `unreadable`: it is no template. `refused`: it is one, and ended with an error of its own. `boundless`: it went on beyond what any has use for. */
export type TemplateOutcome = { readonly text: string } | { readonly what: 'unreadable' | 'refused' | 'boundless'; readonly reason: string };

const library = requireTemplateLibrary();
// Of this thread's own copy of the library: nobody else's templates are rendered with it.
const budget = new TemplateBudget(library);
let last: { readonly source: string; readonly template: { render(variables: Readonly<Record<string, unknown>>): string } } | null = null;

export default function render({ source, variables }: TemplateTask): TemplateOutcome {
  try {
    if (last?.source !== source) last = { source, template: new library.Template(source) };
  } catch (error) {
    return { what: 'unreadable', reason: reasonOf(error) };
  }
  try {
    budget.renew();
    return { text: last.template.render(variables) };
  } catch (error) {
    return { what: budget.isSpent ? 'boundless' : 'refused', reason: reasonOf(error) };
  }
}

function reasonOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, 1_000);
}
