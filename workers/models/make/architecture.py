"""The one shape all three models share, and the ids of their special tokens.

A million parameters keeps every weight file under 2 MiB, so the models can live in the repository
and every test runs real inference. The architecture is Qwen3 because both engines we ship
(llama.cpp and Transformers) implement it natively.
"""

from __future__ import annotations

from typing import Final

HIDDEN_SIZE: Final = 128
FEED_FORWARD_SIZE: Final = 336
LAYER_COUNT: Final = 5
HEAD_COUNT: Final = 4
KV_HEAD_COUNT: Final = 2
HEAD_SIZE: Final = 32
VOCABULARY_SIZE: Final = 1024
CONTEXT_TOKENS: Final = 2048
"""What the weights declare. Training rows are shorter (``TRAINING_ROW_TOKENS``)."""
TRAINING_ROW_TOKENS: Final = 512
ROPE_THETA: Final = 10_000.0
RMS_EPSILON: Final = 1e-6

FILE_BYTES_MAX: Final = 2 * 1024 * 1024
"""No weight file may be larger: the repository's promise."""

ENDOFTEXT: Final = "<|endoftext|>"
IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
THINK: Final = "<think>"
THINK_END: Final = "</think>"
CONTROL_TOKENS: Final = (ENDOFTEXT, IM_START, IM_END)
"""Never shown to a reader."""
VISIBLE_TOKENS: Final = (THINK, THINK_END)
"""Single tokens too, but part of the text: readers split the thought from the answer at them."""
ADDED_TOKENS: Final = CONTROL_TOKENS + VISIBLE_TOKENS
LEARNED_VOCABULARY_SIZE: Final = VOCABULARY_SIZE - len(ADDED_TOKENS)

MODEL_NAMES: Final = ("tiny-tales", "tiny-sums", "tiny-facts")


def added_token_id(token: str) -> int:
    """Id of a special token; they follow the learned vocabulary in the order declared above."""
    return LEARNED_VOCABULARY_SIZE + ADDED_TOKENS.index(token)
