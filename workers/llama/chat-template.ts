/**
 * Messages to the text a model was trained on, by its own template. A message cannot speak for the template: texts that
 * are control tokens are marked before rendering and come out as plain text.
 */
import { LeaseholdError, type ChatMessage } from '../../protocol/index.js';

export interface TemplateContext {
  /** Rejects with an error of ours where nothing else need be tried. */
  readonly render: (variables: Readonly<Record<string, unknown>>) => Promise<string>;
  /** Texts of the vocabulary's control tokens. */
  readonly controlTexts: readonly string[];
  readonly bosText: string;
  readonly eosText: string;
}

/** Used where a file has no template and its vocabulary has these borders. */
export const chatmlTemplate = `{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}`;

/**
 * Renders with an opened answer, into texts to be made tokens one by one. `thinking` undefined: the template's own
 * default. Rejects with `input_invalid` for messages that the template refuses.
 */
export async function renderMessages(context: TemplateContext, messages: readonly ChatMessage[], thinking: boolean | undefined): Promise<readonly string[]> {
  if (messages.length === 0) throw invalid('there are none');
  const mark = unusedMark(messages);
  const markTexts = markerOf(context.controlTexts, mark);
  const marked = messages.map(({ role, content }) => ({ role, content: markTexts(content) }));
  const rendered = await tryRender(context, marked, thinking) ?? await tryRender(context, mergeSystem(marked), thinking, true);
  // A control text is cut inside, so neither half is one: only the template's own become tokens.
  return (rendered ?? '').split(mark).filter((text) => text !== '');
}

type Plain = { readonly role: string; readonly content: string };

/** Null when the template refuses and the system message may be why. */
async function tryRender(context: TemplateContext, messages: readonly Plain[], thinking: boolean | undefined, last = false): Promise<string | null> {
  // Two names are in use for the switch.
  const switches = thinking === undefined ? {} : { enable_thinking: thinking, thinking };
  try {
    return await context.render({ messages, add_generation_prompt: true, bos_token: context.bosText, eos_token: context.eosText, ...switches });
  } catch (error) {
    if (error instanceof LeaseholdError) throw error;
    if (!last && messages.some(({ role }) => role === 'system')) return null;
    throw invalid(`the model's chat template refused them: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** For templates that know no system role: what it says goes before the first user message. */
function mergeSystem(messages: readonly Plain[]): readonly Plain[] {
  const said = messages.filter(({ role }) => role === 'system').map(({ content }) => content);
  const rest = messages.filter(({ role }) => role !== 'system');
  const first = rest.findIndex(({ role }) => role === 'user');
  return rest.map((message, index) => (index === first ? { ...message, content: [...said, message.content].join('\n\n') } : message));
}

/** Private-use characters, as many as it takes to be in none of the messages. */
function unusedMark(messages: readonly ChatMessage[]): string {
  let mark = '\u{f8f2}\u{f8f3}';
  while (messages.some(({ content }) => content.includes(mark))) mark += '\u{f8f3}';
  return mark;
}

/** A function that puts the mark inside every control text, so that it is none any more and can be found again. */
function markerOf(controlTexts: readonly string[], mark: string): (text: string) => string {
  const texts = controlTexts.filter((text) => text.length > 1).sort((one, other) => other.length - one.length);
  if (texts.length === 0) return (text) => text;
  const pattern = new RegExp(texts.map((text) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|'), 'g');
  return (text) => text.replace(pattern, (found) => found.slice(0, 1) + mark + found.slice(1));
}

function invalid(reason: string): LeaseholdError {
  return new LeaseholdError('input_invalid', { field: 'messages', reason });
}
