"""Training rows: conversations cut to a fixed length, with the learned positions marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

import corpus_facts
import corpus_sums
import corpus_tales
from architecture import TRAINING_ROW_TOKENS
from chat import Turn, conversation_pieces

Rows = NDArray[np.int16]
TURNS: Final[dict[str, Callable[[Random], Iterator[Turn]]]] = {
    "tiny-tales": corpus_tales.training_turns,
    "tiny-sums": corpus_sums.training_turns,
    "tiny-facts": corpus_facts.training_turns,
}
SHARD_ROWS: Final = 2_000
LEARNED_FLAG: Final = 1 << 14
"""Set on a token id that counts in the loss; ids stay far below it."""


def _shard(model: str, tokenizer_json: str, seed: int) -> Rows:
    """``SHARD_ROWS`` rows of one seed. Runs in a process of its own."""
    tokenizer = Tokenizer.from_file(tokenizer_json)
    cache: dict[str, list[int]] = {}

    def encode(text: str) -> list[int]:
        # System prompts and stories hardly ever come twice.
        if len(text) > 200:
            return list(tokenizer.encode(text).ids)
        if text not in cache:
            cache[text] = tokenizer.encode(text).ids
        return cache[text]

    random = Random(f"{model}/{seed}")
    rows = np.zeros((SHARD_ROWS, TRAINING_ROW_TOKENS + 1), np.int16)
    for row in rows:
        filled = 0
        for piece in conversation_pieces(TURNS[model](random), random):
            ids = np.asarray(encode(piece.text)[: len(row) - filled], np.int16)
            row[filled : filled + len(ids)] = ids | LEARNED_FLAG if piece.learned else ids
            filled += len(ids)
            if filled == len(row):
                break
    return rows


def build_rows(model: str, tokenizer_json: Path, row_count: int, processes: int) -> Rows:
    """At least ``row_count`` rows of ``TRAINING_ROW_TOKENS`` + 1 tokens, the same for any ``processes``."""
    shard_count = -(-row_count // SHARD_ROWS)
    with ProcessPoolExecutor(processes) as pool:
        shards = pool.map(_shard, [model] * shard_count, [str(tokenizer_json)] * shard_count, range(shard_count))
        return np.concatenate(list(shards))
