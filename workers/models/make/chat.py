"""ChatML as the models are trained on it, and the template that renders the same text later.

The template and ``conversation_pieces`` must agree to the byte; ``make.py`` checks that before it
trains anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from architecture import ENDOFTEXT, IM_END, IM_START, THINK, THINK_END
from noise import system_prompt

EMPTY_THOUGHT: Final = f"{THINK}\n\n{THINK_END}\n\n"
"""What Qwen3's template puts in the prompt when thinking is switched off."""

CHAT_TEMPLATE: Final = """\
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and not loop.last and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

@dataclass(frozen=True)
class Turn:
    """One question and what the model should say; ``thought`` is None for models that never think."""

    question: str
    answer: str
    thought: str | None = None


Mode = Literal["open", "switched_off", "history"]


@dataclass(frozen=True)
class Piece:
    """Text of a training row; only pieces with ``learned`` count in the loss."""

    text: str
    learned: bool


def turn_pieces(turn: Turn, mode: Mode) -> Iterator[Piece]:
    """Pieces of one turn.

    ``open``: the model thinks first if it is one that thinks. ``switched_off``: the empty thought is
    in the prompt. ``history``: an earlier answer as the template shows it later, without its thought;
    not learned, or the model would learn to skip thinking.
    """
    yield Piece(f"{IM_START}user\n{turn.question}{IM_END}\n{IM_START}assistant\n", False)
    if mode == "history":
        yield Piece(f"{turn.answer}{IM_END}\n", False)
        return
    if mode == "switched_off":
        yield Piece(EMPTY_THOUGHT, False)
    elif turn.thought is not None:
        yield Piece(f"{THINK}\n{turn.thought}\n{THINK_END}\n\n", True)
    yield Piece(f"{turn.answer}{IM_END}", True)
    yield Piece("\n", False)


def conversation_pieces(turns: Iterator[Turn], random: Random) -> Iterator[Piece]:
    """An endless stream of conversations for one training row; the caller cuts it.

    Most turns follow earlier ones, so the models keep answering the last question in a long chat.
    """
    first = True
    while True:
        if first or random.random() < 0.25:
            if not first:
                yield Piece(ENDOFTEXT, False)
            if random.random() < 0.4:
                yield Piece(f"{IM_START}system\n{system_prompt(random)}{IM_END}\n", False)
        turn = next(turns)
        draw = random.random()
        mode: Mode = "open" if draw < 0.6 else "switched_off" if draw < 0.9 or first else "history"
        yield from turn_pieces(turn, mode)
        first = False
