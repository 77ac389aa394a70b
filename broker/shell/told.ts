/** What the shell says to people: the names that they gave to models, in place of the keys by which the core knows them. */

/** By whoever has the catalogue. What nobody has named stays as it is. */
export interface ModelNames {
  name(key: string): string;
  /** A sentence with names for keys. */
  inText(text: string): string;
}

export const noNames: ModelNames = { name: (key) => key, inText: (text) => text };

/** Values of events and details of errors that are sentences. */
const sentences: ReadonlySet<string> = new Set(['why', 'reason', 'how', 'models', 'what', 'holder']);

/** Every sentence among the values with names; the values themselves where there is none, which is so of nearly all. */
export function told<Value>(values: Readonly<Record<string, Value>>, names: ModelNames): Readonly<Record<string, Value | string>> {
  if (names === noNames) return values;
  let named: Record<string, Value | string> | null = null;
  for (const field in values) {
    const value = values[field];
    if (typeof value === 'string' && sentences.has(field)) (named ??= { ...values })[field] = names.inText(value);
  }
  return named ?? values;
}

/** The same for a line of the log; the key of a model stands beside its name. */
export function logged(values: Readonly<Record<string, unknown>>, names: ModelNames): Readonly<Record<string, unknown>> {
  const { model } = values;
  const name = typeof model === 'string' ? names.name(model) : model;
  const said = told(values, names);
  return name === model ? said : { ...said, model: name, modelKey: model };
}
