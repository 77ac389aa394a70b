"""Trains one model on its generated corpus and rounds it once for good.

Run by ``make.py``, one process a model. The loop is bounded by steps and by seconds, whichever ends
first, and the learning rate follows the further of the two, so that a slow machine still anneals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import Qwen3Config, Qwen3ForCausalLM

import architecture as shape
from rows import LEARNED_FLAG, Rows, build_rows
from tokenizer import vocabulary_of

SEED: Final = 2026
WARMUP_STEPS: Final = 200


@dataclass(frozen=True)
class Schedule:
    """``seconds_max`` bounds the training loop alone, not the corpus or the compilation."""

    row_count: int
    batch_rows: int
    steps: int
    seconds_max: float
    learning_rate: float
    processes: int


def model_config() -> Qwen3Config:
    """The Transformers configuration of the shared shape."""
    return Qwen3Config(
        vocab_size=shape.VOCABULARY_SIZE,
        hidden_size=shape.HIDDEN_SIZE,
        intermediate_size=shape.FEED_FORWARD_SIZE,
        num_hidden_layers=shape.LAYER_COUNT,
        num_attention_heads=shape.HEAD_COUNT,
        num_key_value_heads=shape.KV_HEAD_COUNT,
        head_dim=shape.HEAD_SIZE,
        max_position_embeddings=shape.CONTEXT_TOKENS,
        rms_norm_eps=shape.RMS_EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": shape.ROPE_THETA},
        tie_word_embeddings=True,
        attention_bias=False,
        bos_token_id=None,
        eos_token_id=shape.added_token_id(shape.IM_END),
        pad_token_id=shape.added_token_id(shape.ENDOFTEXT),
    )


def round_weights(model: Qwen3ForCausalLM) -> None:
    """Rounds every weight to a value that bfloat16 and float16 both hold exactly.

    bfloat16 first: what it leaves has at most 8 significant bits, which float16 keeps, or rounds to
    a multiple of its smallest step, which bfloat16 keeps.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            rounded = parameter.to(torch.bfloat16).to(torch.float16).to(torch.float32)
            if not torch.equal(rounded.to(torch.bfloat16).to(torch.float32), rounded):
                raise ValueError("a rounded weight is not exact in bfloat16")
            parameter.copy_(rounded)


def start_from(model: Qwen3ForCausalLM, source: Path, tokenizer_json: Path) -> None:
    """Takes over the weights of another run; embeddings go by the token's text, for its vocabulary may differ."""
    old_tokens, _ = vocabulary_of(source / "tokenizer.json")
    new_tokens, _ = vocabulary_of(tokenizer_json)
    old_ids = {token: index for index, token in enumerate(old_tokens)}
    weights = {name: value.to(torch.float32) for name, value in load_file(source / "model.safetensors").items()}
    old_rows = weights["model.embed_tokens.weight"]
    fresh_row = old_rows.mean(0)
    weights["model.embed_tokens.weight"] = torch.stack(
        [old_rows[old_ids[token]] if token in old_ids else fresh_row for token in new_tokens]
    )
    missing = model.load_state_dict(weights, strict=False).missing_keys
    if missing != ["lm_head.weight"]:
        raise ValueError(f"{source} lacks {missing}")


def _rate(progress: float, step: int, peak: float) -> float:
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return peak * warm * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress))))


def _optimizer(model: Qwen3ForCausalLM, schedule: Schedule, fused: bool) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    norms = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.98), fused=fused)


def _loop(model: Qwen3ForCausalLM, rows: Rows, schedule: Schedule, device: str, compiled: bool, label: str) -> int:
    """The training loop; returns the steps taken."""
    pool = torch.from_numpy(rows).to(device)
    on_gpu = device == "cuda"
    optimizer = _optimizer(model, schedule, fused=on_gpu)

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        ids = (batch & (LEARNED_FLAG - 1)).long()
        targets = torch.where(batch[:, 1:] >= LEARNED_FLAG, ids[:, 1:], -100)
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)

    step_loss = torch.compile(loss_of, dynamic=False) if compiled else loss_of
    order = torch.Generator(device).manual_seed(SEED)
    started = 0.0
    for step in range(schedule.steps):
        seconds = time.monotonic() - started if step > 10 else 0.0
        progress = max(step / schedule.steps, seconds / schedule.seconds_max)
        if progress >= 1.0:
            return step
        for group in optimizer.param_groups:
            group["lr"] = _rate(progress, step, schedule.learning_rate)
        picked = torch.randint(len(pool), (schedule.batch_rows,), generator=order, device=device)
        loss = step_loss(pool[picked])
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 10:
            started = time.monotonic()
        if step % 250 == 0 or step == 10:
            print(f"{label} step {step} loss {loss.item():.4f} at {seconds:.0f} s", flush=True)
    return schedule.steps


def train(
    name: str, tokenizer_json: Path, schedule: Schedule, device: str, compiled: bool, source: Path | None
) -> Qwen3ForCausalLM:
    """A trained and rounded model in float32 on the CPU; ``source`` is a model directory to start from."""
    began = time.monotonic()
    rows = build_rows(name, tokenizer_json, schedule.row_count, schedule.processes)
    learned = float((rows >= LEARNED_FLAG).mean())
    print(f"{name} {len(rows)} rows, {learned:.0%} learned, in {time.monotonic() - began:.0f} s", flush=True)
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    construct: Callable[[Qwen3Config], Any] = Qwen3ForCausalLM
    model = construct(model_config()).to(device, torch.float32)
    if source is not None:
        start_from(model, source, tokenizer_json)
    print(f"{name} {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    steps = _loop(model, rows, schedule, device, compiled, name)
    print(f"{name} {steps} steps in {time.monotonic() - began:.0f} s", flush=True)
    trained: Qwen3ForCausalLM = model.to("cpu").eval()
    round_weights(trained)
    return trained
