"""The byte-level BPE tokenizer all three models share.

It splits text with the pattern llama.cpp calls ``qwen2`` and has no normaliser, because llama.cpp
has none: both engines then give the same ids for the same text. One vocabulary for all three lets
any of them draft for another in speculative decoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus_facts
import corpus_sums
import corpus_tales
from architecture import ADDED_TOKENS, CONTROL_TOKENS, LEARNED_VOCABULARY_SIZE, VOCABULARY_SIZE, added_token_id
from chat import Turn
from noise import SYSTEM_SENTENCES

QWEN2_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SAMPLE_SEED: Final = 11
SAMPLE_TURNS: Final = {"tales": 12_000, "sums": 3_000, "facts": 20_000}


def _turns_text(turns: Iterator[Turn]) -> Iterator[str]:
    for turn in turns:
        yield turn.question
        yield turn.answer
        if turn.thought is not None:
            yield turn.thought


def _sample() -> Iterator[str]:
    """Text the merges are learned from: a slice of each corpus and the words around it."""
    yield from ["user\n", "assistant\n", "system\n", *SYSTEM_SENTENCES] * 20
    yield from _turns_text(islice(corpus_tales.training_turns(Random(SAMPLE_SEED)), SAMPLE_TURNS["tales"]))
    yield from _turns_text(islice(corpus_sums.training_turns(Random(SAMPLE_SEED)), SAMPLE_TURNS["sums"]))
    yield from _turns_text(islice(corpus_facts.training_turns(Random(SAMPLE_SEED)), SAMPLE_TURNS["facts"]))


def build_tokenizer() -> Tokenizer:
    """Learns the merges and adds the special tokens behind them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED_VOCABULARY_SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(), trainer)
    tokenizer.add_tokens(
        [AddedToken(token, special=token in CONTROL_TOKENS, normalized=False) for token in ADDED_TOKENS]
    )
    if tokenizer.get_vocab_size() != VOCABULARY_SIZE:
        raise ValueError(f"vocabulary has {tokenizer.get_vocab_size()} tokens, not {VOCABULARY_SIZE}")
    for token in ADDED_TOKENS:
        if tokenizer.token_to_id(token) != added_token_id(token):
            raise ValueError(f"{token} is not where the architecture says")
    return tokenizer


def vocabulary_of(tokenizer_json: Path) -> tuple[list[str], list[str]]:
    """Tokens in the order of their ids, and merges as "left right", as GGUF wants them."""
    data: dict[str, Any] = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    ids: dict[str, int] = dict(data["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in data["added_tokens"]}
    tokens = sorted(ids, key=lambda token: ids[token])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    return tokens, merges
