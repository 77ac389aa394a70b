"""Makes the three models: tokenizer, corpora, training, both exports, evaluation sets and fixture.

    python workers/models/make/make.py --out workers/models

trains all three, each in a process of its own, on the GPU if there is one. Evaluation sets alone
(no weights touched): ``--only evaluation``. The fixture again from existing weights: ``--only fixture``.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import corpus_facts
import corpus_sums
import corpus_tales
from architecture import FILE_BYTES_MAX, MODEL_NAMES

EVALUATION_COUNT: Final = 200
TALES_COUNT: Final = 40


def write_evaluation(out: Path) -> None:
    """The held-out questions and the world, as data for the TypeScript side."""
    from export_hf import write_items

    folder = out / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    write_items(folder / "sums.json", corpus_sums.evaluation_items(EVALUATION_COUNT))
    write_items(folder / "facts.json", corpus_facts.evaluation_items(EVALUATION_COUNT))
    write_items(folder / "tales.json", corpus_tales.evaluation_items(TALES_COUNT))
    write_items(out / "world.json", corpus_facts.world_items())


def check_template(tokenizer_json: Path) -> None:
    """Training text and the rendered template must be the same, piecewise encoding the same as whole."""
    from jinja2 import Environment
    from tokenizers import Tokenizer

    from chat import CHAT_TEMPLATE, turn_pieces

    template = Environment().from_string(CHAT_TEMPLATE)
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    for corpus in (corpus_tales, corpus_sums, corpus_facts):
        for turn in itertools.islice(corpus.training_turns(Random(1)), 50):
            for mode, thinking in (("open", True), ("switched_off", False)):
                pieces = list(turn_pieces(turn, "open" if mode == "open" else "switched_off"))
                prompt = "".join(piece.text for piece in itertools.takewhile(lambda piece: not piece.learned, pieces))
                messages = [{"role": "user", "content": turn.question}]
                rendered = template.render(messages=messages, add_generation_prompt=True, enable_thinking=thinking)
                if rendered != prompt:
                    raise ValueError(f"template renders {rendered!r}, training has {prompt!r}")
                whole = tokenizer.encode("".join(piece.text for piece in pieces)).ids
                if whole != [token for piece in pieces for token in tokenizer.encode(piece.text).ids]:
                    raise ValueError(f"piecewise encoding differs for {turn.question!r}")


def make_model(name: str, out: Path, tokenizer_json: Path, options: argparse.Namespace) -> None:
    """Trains, exports and measures one model."""
    import torch

    from export_gguf import export_gguf
    from export_hf import export_hf
    from greedy_fixture import measure
    from train import Schedule, train

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(options.models)))
    schedule = Schedule(
        row_count=options.rows,
        batch_rows=options.batch,
        steps=options.steps,
        seconds_max=options.seconds,
        learning_rate=options.rate,
        processes=max(1, (os.cpu_count() or 1) // len(options.models)),
    )
    compiled = device == "cuda" and not options.eager
    source = options.source / name if options.source is not None else None
    model = train(name, tokenizer_json, schedule, device, compiled, source)
    export_hf(model, name, tokenizer_json, out / name)
    path = export_gguf(name, out / name)
    for file in (path, out / name / "model.safetensors"):
        print(f"{file.name} of {name}: {file.stat().st_size} bytes", flush=True)
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
    torch.set_num_threads(1)
    print(measure(out, name, options.measure), flush=True)


def write_manifest(out: Path) -> None:
    """Size and SHA-256 of every weight file, for the catalogue."""
    from export_hf import write_json

    files = [file for name in MODEL_NAMES for file in (out / name / f"{name}-f16.gguf", out / name / "model.safetensors")]
    write_json(
        out / "manifest.json",
        {
            file.relative_to(out).as_posix(): {
                "bytes": file.stat().st_size,
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            }
            for file in files
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes the tiny models.")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets a folder a model")
    parser.add_argument("--models", nargs="+", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument("--from", dest="source", type=Path, help="folder of an earlier run to start from")
    parser.add_argument("--only", choices=("evaluation", "fixture"))
    parser.add_argument("--rows", type=int, default=50_000, help="training rows generated, per model")
    parser.add_argument("--batch", type=int, default=128, help="rows a step")
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--seconds", type=float, default=90.0, help="bound on the training loop")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--measure", type=int, default=100, help="held-out questions asked after training")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    return parser.parse_args()


def main() -> int:
    """Entry point; the exit status is that of the worst model."""
    options = _options()
    out: Path = options.out
    write_evaluation(out)
    if options.only is None:
        from tokenizer import build_tokenizer

        tokenizer_json = out / "tokenizer.json"
        build_tokenizer().save(str(tokenizer_json), pretty=False)
        check_template(tokenizer_json)
        context = multiprocessing.get_context("spawn")
        children = [context.Process(target=make_model, args=(name, out, tokenizer_json, options)) for name in options.models]
        for child in children:
            child.start()
        for child in children:
            child.join()
        tokenizer_json.unlink()
        if any(child.exitcode != 0 for child in children):
            return 1
    if options.only != "evaluation" and all((out / name / "model.safetensors").exists() for name in MODEL_NAMES):
        from export_hf import write_items
        from greedy_fixture import greedy_cases

        write_items(out / "evaluation" / "greedy-ids.json", greedy_cases(out))
        write_manifest(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
