"""Records what Transformers generates greedily in float32, for llama.cpp to be held against.

Also measures quality with Transformers, so that a training run is judged before it leaves the machine;
the figures that count are llama.cpp's (``workers/models/evaluate.ts``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import corpus_facts
import corpus_sums
import corpus_tales
from architecture import THINK_END

NEW_TOKENS_MAX: Final = 256


@dataclass
class _Loaded:
    tokenizer: Any
    model: Any


def _load(directory: Path) -> _Loaded:
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return _Loaded(AutoTokenizer.from_pretrained(directory), model.eval())


def _prompt(loaded: _Loaded, question: str, thinking: bool) -> str:
    message = [{"role": "user", "content": question}]
    text: str = loaded.tokenizer.apply_chat_template(
        message, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
    )
    return text


def _greedy(loaded: _Loaded, prompts: list[str]) -> list[list[int]]:
    """Generated ids of each prompt, end-of-sequence token included. One by one: padding would change sums."""
    answers = []
    for prompt in prompts:
        ids = loaded.tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            out = loaded.model.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS_MAX)
        answers.append(out[0, ids.shape[1] :].tolist())
    return answers


def _cases() -> list[tuple[str, str, bool]]:
    """(model, question, thinking) of the 20 prompts: none of them chosen by what came out."""
    tales = [item["question"] for item in corpus_tales.evaluation_items(6)]
    sums = [item["question"] for item in corpus_sums.evaluation_items(7)]
    facts = [item["question"] for item in corpus_facts.evaluation_items(7)]
    return (
        [("tiny-tales", question, True) for question in tales]
        + [("tiny-sums", question, index < 4) for index, question in enumerate(sums)]
        + [("tiny-facts", question, index < 4) for index, question in enumerate(facts)]
    )


def greedy_cases(models: Path) -> list[dict[str, object]]:
    """The fixture: first the versions that made it, then 20 prompts with their ids and the generated ids."""
    loaded: dict[str, _Loaded] = {}
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "tokenizers": tokenizers.__version__}
    cases: list[dict[str, object]] = [{"madeWith": versions, "dtype": "float32", "newTokensMax": NEW_TOKENS_MAX}]
    for name, question, thinking in _cases():
        if name not in loaded:
            loaded[name] = _load(models / name)
        engine = loaded[name]
        prompt = _prompt(engine, question, thinking)
        cases.append(
            {
                "model": name,
                "question": question,
                "thinking": thinking,
                "prompt": prompt,
                "promptIds": engine.tokenizer(prompt, add_special_tokens=False).input_ids,
                "generatedIds": _greedy(engine, [prompt])[0],
            }
        )
    return cases


def _answers(loaded: _Loaded, questions: list[str], thinking: bool) -> list[str]:
    ids = _greedy(loaded, [_prompt(loaded, question, thinking) for question in questions])
    return [str(loaded.tokenizer.decode(answer, skip_special_tokens=True)) for answer in ids]


def measure(models: Path, name: str, count: int) -> str:
    """A line about how many of ``count`` held-out questions come out right, with the first wrong ones."""
    loaded = _load(models / name)
    if name == "tiny-tales":
        tales = corpus_tales.evaluation_items(min(count, 40))
        told = _answers(loaded, [item["question"] for item in tales], True)
        right = [
            text.endswith("The end.") and all(word in text for word in item["nouns"] + item["names"])
            for item, text in zip(tales, told, strict=True)
        ]
        return f"{name} {sum(right)}/{len(right)}; {told[:2]}"
    items = corpus_sums.evaluation_items(count) if name == "tiny-sums" else corpus_facts.evaluation_items(count)
    lines = []
    for thinking in (True, False):
        texts = _answers(loaded, [item["question"] for item in items], thinking)
        wrong = [
            (item["question"], text)
            for item, text in zip(items, texts, strict=True)
            if not re.search(rf"\b{item['expected']}\.$", text.split(THINK_END)[-1])
        ]
        lines.append(f"{name} thinking={thinking} {len(items) - len(wrong)}/{len(items)}; wrong {wrong[:6]}")
    return "\n".join(lines)
