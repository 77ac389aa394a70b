"""Writes a model directory's weights and tokenizer as one GGUF v3 file.

Matrices are F16 and norms F32, as llama.cpp's own converter writes them. Qwen3 in llama.cpp turns
halves, not neighbours, so no row is permuted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

import architecture as shape
from chat import CHAT_TEMPLATE
from tokenizer import vocabulary_of

ALIGNMENT_BYTES: Final = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_F16 = 0, 1
TOKEN_NORMAL, TOKEN_CONTROL, TOKEN_USER_DEFINED = 1, 3, 4
FILE_TYPE_MOSTLY_F16: Final = 1

LAYER_TENSORS: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class _Tensor:
    name: str
    kind: int
    dimensions: tuple[int, ...]
    data: bytes


def gguf_name(name: str) -> str:
    """The GGUF name of a tensor of the Transformers model; KeyError for one it does not have."""
    parts = name.split(".")
    if parts[1] == "layers":
        return f"blk.{parts[2]}.{LAYER_TENSORS['.'.join(parts[3:-1])]}.weight"
    return {"embed_tokens": "token_embd", "norm": "output_norm"}[parts[1]] + ".weight"


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _uint(key: str, value: int) -> bytes:
    return _string(key) + struct.pack("<II", UINT32, value)


def _float(key: str, value: float) -> bytes:
    return _string(key) + struct.pack("<If", FLOAT32, value)


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", STRING) + _string(value)


def _array(key: str, kind: int, items: list[bytes]) -> bytes:
    return _string(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def _token_type(token: str) -> int:
    if token in shape.CONTROL_TOKENS:
        return TOKEN_CONTROL
    return TOKEN_USER_DEFINED if token in shape.VISIBLE_TOKENS else TOKEN_NORMAL


def _metadata(name: str, tokenizer_json: Path) -> list[bytes]:
    tokens, merges = vocabulary_of(tokenizer_json)
    endoftext = shape.added_token_id(shape.ENDOFTEXT)
    return [
        _text("general.architecture", "qwen3"),
        _text("general.type", "model"),
        _text("general.name", name),
        _text("general.license", "apache-2.0"),
        _uint("general.file_type", FILE_TYPE_MOSTLY_F16),
        _uint("qwen3.block_count", shape.LAYER_COUNT),
        _uint("qwen3.context_length", shape.CONTEXT_TOKENS),
        _uint("qwen3.embedding_length", shape.HIDDEN_SIZE),
        _uint("qwen3.feed_forward_length", shape.FEED_FORWARD_SIZE),
        _uint("qwen3.attention.head_count", shape.HEAD_COUNT),
        _uint("qwen3.attention.head_count_kv", shape.KV_HEAD_COUNT),
        _uint("qwen3.attention.key_length", shape.HEAD_SIZE),
        _uint("qwen3.attention.value_length", shape.HEAD_SIZE),
        _float("qwen3.attention.layer_norm_rms_epsilon", shape.RMS_EPSILON),
        _float("qwen3.rope.freq_base", shape.ROPE_THETA),
        _text("tokenizer.ggml.model", "gpt2"),
        _text("tokenizer.ggml.pre", "qwen2"),
        _array("tokenizer.ggml.tokens", STRING, [_string(token) for token in tokens]),
        _array("tokenizer.ggml.token_type", INT32, [struct.pack("<i", _token_type(token)) for token in tokens]),
        _array("tokenizer.ggml.merges", STRING, [_string(merge) for merge in merges]),
        _uint("tokenizer.ggml.bos_token_id", endoftext),
        _uint("tokenizer.ggml.eos_token_id", shape.added_token_id(shape.IM_END)),
        _uint("tokenizer.ggml.padding_token_id", endoftext),
        _string("tokenizer.ggml.add_bos_token") + struct.pack("<I?", BOOL, False),
        _text("tokenizer.chat_template", CHAT_TEMPLATE),
    ]


def _tensor(name: str, values: torch.Tensor) -> _Tensor:
    array: NDArray[np.float32] = values.to(torch.float32).numpy()
    dimensions = tuple(reversed(array.shape))
    if array.ndim == 1:
        return _Tensor(gguf_name(name), TENSOR_F32, dimensions, array.tobytes())
    halves = array.astype(np.float16)
    if not np.array_equal(halves.astype(np.float32), array):
        raise ValueError(f"{name} is not exact in float16")
    return _Tensor(gguf_name(name), TENSOR_F16, dimensions, halves.tobytes())


def _padding(length: int) -> bytes:
    return b"\0" * (-length % ALIGNMENT_BYTES)


def export_gguf(name: str, directory: Path) -> Path:
    """Writes ``directory/<name>-f16.gguf`` from the safetensors and tokenizer beside it."""
    tensors = [_tensor(key, value) for key, value in load_file(directory / "model.safetensors").items()]
    metadata = _metadata(name, directory / "tokenizer.json")
    infos, offset = [], 0
    for tensor in tensors:
        shape_bytes = struct.pack(f"<I{len(tensor.dimensions)}Q", len(tensor.dimensions), *tensor.dimensions)
        infos.append(_string(tensor.name) + shape_bytes + struct.pack("<IQ", tensor.kind, offset))
        offset += len(tensor.data) + len(_padding(len(tensor.data)))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata) + b"".join(infos)
    body = b"".join(tensor.data + _padding(len(tensor.data)) for tensor in tensors)
    path = directory / f"{name}-f16.gguf"
    path.write_bytes(header + _padding(len(header)) + body)
    return path
