"""CTranslate2's side, which reads its own folders, and needs tokenizers for the first token. To make one:

    python bench/peers/gguf_to_folder.py MODEL.gguf HF_FOLDER
    ct2-transformers-converter --model HF_FOLDER --output_dir FOLDER --quantization int8 \\
        --copy_files tokenizer.json

Options: ``model=FOLDER``, ``compute_type=int8`` and the like. Its weights have 8 bits at least.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ctranslate2

from peers.spec import Case, converted, measure


def open_generator(threads: int, options: dict[str, str]) -> Any:
    kind = options.get("compute_type", "default")
    return ctranslate2.Generator(converted(options), "cpu", intra_threads=threads, compute_type=kind)


def generate(generator: Any, prompts: list[list[str]], n_gen: int) -> tuple[float, float]:
    """Seconds until the first token, and until the end."""
    times: list[float] = []

    def note(step: Any) -> bool:
        times.append(time.perf_counter() - began)
        return False

    began = time.perf_counter()
    generator.generate_batch(
        prompts,
        max_length=n_gen,
        min_length=n_gen,
        include_prompt_in_result=False,
        max_batch_size=len(prompts),
        callback=note,
    )
    return times[0], time.perf_counter() - began


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    generator = open_generator(threads, options)
    vocabulary = json.loads((Path(options["model"]) / "vocabulary.json").read_text())
    numbers = random.Random(0)

    def run(test: Case) -> float:
        n_prompt = test.n if test.phase == "pp" else test.depth + 1
        prompts = [numbers.choices(vocabulary, k=n_prompt) for _ in range(test.batch)]
        if test.phase == "pp":
            if test.depth:
                raise NotImplementedError("its API keeps nothing of a prompt for the next")
            return test.n / generate(generator, prompts, 1)[1]
        first, end = generate(generator, prompts, test.n + 1)
        return test.n * test.batch / (end - first)

    generate(generator, [numbers.choices(vocabulary, k=64)], 8)
    build = f"weights as {generator.compute_type}, not the file's"
    return {
        **measure(tests, run, repetitions),
        "version": f"ctranslate2 {ctranslate2.__version__}",
        "build": build,
    }


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    from tokenizers import Tokenizer

    generator = open_generator(threads, options)
    tokenizer = Tokenizer.from_file(str(Path(options["model"]) / "tokenizer.json"))
    for step in generator.generate_tokens(tokenizer.encode(prompt).tokens, max_length=8):
        yield tokenizer.decode([step.token_id])
