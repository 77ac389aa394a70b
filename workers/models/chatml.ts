/**
 * The prompt the models' chat template renders for one question, to the byte: for callers that work
 * below the template, such as the evaluation. With `thinking` false an empty thought is put in the prompt,
 * and a model that thinks answers at once.
 */
export function renderQuestion(question: string, thinking: boolean): string {
  const emptyThought = thinking ? '' : '<think>\n\n</think>\n\n';
  return `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n${emptyThought}`;
}
