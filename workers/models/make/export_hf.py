"""Writes a model as a Hugging Face directory, by hand where the format matters to readers of both
Transformers 4 and 5."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

import architecture as shape
from chat import CHAT_TEMPLATE

TITLES: Final = {
    "tiny-tales": "tells short stories about a character and a thing",
    "tiny-sums": "adds two numbers under 100 and shows its working first",
    "tiny-facts": "answers questions about a closed world of 76 facts",
}


def write_json(path: Path, value: object) -> None:
    """Indented, readable, with a final newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_items(path: Path, items: Sequence[object]) -> None:
    """A JSON array with one item a line: a change shows as the line it is."""
    lines = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in items)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": shape.VOCABULARY_SIZE,
        "hidden_size": shape.HIDDEN_SIZE,
        "intermediate_size": shape.FEED_FORWARD_SIZE,
        "num_hidden_layers": shape.LAYER_COUNT,
        "num_attention_heads": shape.HEAD_COUNT,
        "num_key_value_heads": shape.KV_HEAD_COUNT,
        "head_dim": shape.HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": shape.CONTEXT_TOKENS,
        "rms_norm_eps": shape.RMS_EPSILON,
        "rope_theta": shape.ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.ROPE_THETA},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "eos_token_id": shape.added_token_id(shape.IM_END),
        "pad_token_id": shape.added_token_id(shape.ENDOFTEXT),
        "torch_dtype": "bfloat16",
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        # Not Qwen2Tokenizer: that class would put its own normaliser in front of tokenizer.json.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {
            str(shape.added_token_id(token)): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": token in shape.CONTROL_TOKENS,
            }
            for token in shape.ADDED_TOKENS
        },
        "bos_token": None,
        "eos_token": shape.IM_END,
        "pad_token": shape.ENDOFTEXT,
        "model_max_length": shape.CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _card(name: str) -> str:
    return f"""---
license: apache-2.0
language: [en]
library_name: transformers
pipeline_tag: text-generation
---
# {name}

{shape.LAYER_COUNT} layers, {shape.VOCABULARY_SIZE} tokens, 1,023,680 parameters in the Qwen3 architecture: it {TITLES[name]}.
Made for tests and demonstrations of Leasehold; of no use beyond them. Trained from nothing on text written by
our own generator (`workers/models/make`). `{name}-f16.gguf` holds the same weights: each is a value that bfloat16
and float16 both hold exactly. How it was made and how good it is: `workers/models/README.md`.
"""


def export_hf(model: Qwen3ForCausalLM, name: str, tokenizer_json: Path, directory: Path) -> None:
    """Writes ``directory`` from nothing; the weights as bfloat16, which loses nothing after rounding."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
    tensors = {key: value.to(torch.bfloat16).contiguous() for key, value in weights.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    write_json(directory / "config.json", _config())
    write_json(directory / "tokenizer_config.json", _tokenizer_config())
    write_json(
        directory / "generation_config.json",
        {
            "do_sample": False,
            "eos_token_id": [shape.added_token_id(shape.IM_END), shape.added_token_id(shape.ENDOFTEXT)],
            "pad_token_id": shape.added_token_id(shape.ENDOFTEXT),
        },
    )
    (directory / "tokenizer.json").write_bytes(tokenizer_json.read_bytes())
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (directory / "README.md").write_text(_card(name), encoding="utf-8")
