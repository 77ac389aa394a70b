/**
 * Which tokens are thought, told by the ids of the model's own tags, never by text that looks like one:
 * - the prompt may have opened the thought; else an opening tag counts only at the start, after white space at most;
 * - the first closing tag ends it, nesting or not; repeated closing tags right after it are dropped;
 * - from then on nothing is parsed: a tag in the answer is text.
 */

export interface ThoughtTags {
  readonly openId: number;
  readonly closeId: number;
}

/** `tag`: a border, part of neither. */
export type TokenRole = 'thought' | 'answer' | 'tag';

type State = 'start' | 'thinking' | 'closed' | 'answering';

export class ThoughtSplitter {
  #state: State;

  constructor(private readonly tags: ThoughtTags | null, opened: boolean) {
    this.#state = tags === null ? 'answering' : opened ? 'thinking' : 'start';
  }

  get thinking(): boolean {
    return this.#state === 'thinking';
  }

  /** `isSpace` tells whether the token is nothing but white space; asked at the start alone. */
  push(id: number, isSpace: (id: number) => boolean): TokenRole {
    const { tags } = this;
    switch (this.#state) {
      case 'start':
        if (id === tags?.openId) return this.#move('thinking', 'tag');
        return isSpace(id) ? 'answer' : this.#move('answering', 'answer');
      case 'thinking':
        return id === tags?.closeId ? this.#move('closed', 'tag') : 'thought';
      case 'closed':
        return id === tags?.closeId ? 'tag' : this.#move('answering', 'answer');
      case 'answering':
        return 'answer';
    }
  }

  #move(state: State, role: TokenRole): TokenRole {
    this.#state = state;
    return role;
  }
}

/**
 * Whether a prompt leaves the model in the middle of a thought: going back from its end, an opening tag comes before any
 * closing tag and before any other special token. So a tag in a user's message opens nothing.
 */
export function endsInThought(prompt: readonly number[], tags: ThoughtTags | null, isSpecial: (id: number) => boolean): boolean {
  if (tags === null) return false;
  for (let index = prompt.length - 1; index >= 0; index--) {
    const id = prompt[index] ?? -1;
    if (id === tags.openId) return true;
    if (id === tags.closeId || isSpecial(id)) return false;
  }
  return false;
}
