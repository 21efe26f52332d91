"""pyrt's own side, through its public API, measured as `pyrt.bench` does, but for what that allocates.

Options go to `pyrt.load`, as ``kv_dtype=int8`` or ``dtype=int4``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from peers.spec import Case, measure, parse

PAGE = 32  # tokens in a page of the KV cache
RUN: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    import pyrt

    numbers = random.Random(0)
    with pyrt.load(model, threads=threads, context_length=_context(tests), **options) as loaded:
        loaded.generate([numbers.randrange(loaded.n_vocab)], max_tokens=9, **RUN)
        found = measure(tests, lambda test: _run(loaded, test, numbers), repetitions)
        info = loaded.info
        build = f"{info.isa}, {info.numerics} numerics, {info.kv_dtype} K and V"
        return {**found, "version": f"pyrt {pyrt.__version__}", "build": build}


def _context(tests: list[str]) -> int:
    """The KV cache holds some contexts of this length, and all sequences of a test must fit into it."""
    return max(test.batch * (test.context // PAGE + 2) * PAGE for test in map(parse, tests))


def _run(model: Any, test: Case, numbers: random.Random) -> float:
    """Tokens a second; of several sequences together, from the first token of any to the last of all."""
    ids = range(model.n_vocab)
    past = random.Random(test.depth)
    contexts = [past.choices(ids, k=test.depth) for _ in range(test.batch)]
    if test.depth:  # their pages stay in the cache
        model.generate(contexts, max_tokens=1, **RUN)
    if test.phase == "pp":
        prompt = [*contexts[0], *numbers.choices(ids, k=test.n)]
        return float(model.generate(prompt, max_tokens=1, **RUN).timings.prefill_tps)
    prompts = [[*context, numbers.choice(ids)] for context in contexts]
    began = time.monotonic()
    done = model.generate(prompts, max_tokens=test.n + 1, **RUN)
    ended = time.monotonic()
    start = min(each.timings.queue_seconds + each.timings.prefill_seconds for each in done)
    return test.n * test.batch / (ended - began - start)


def limits(model: str, threads: int, tests: list[str], options: dict[str, str]) -> dict[str, Any]:
    """How fast the machine reads a buffer of the weights' size, what each step of a generating test reads,
    and how many weights a token is multiplied with, by their arithmetic, in the layers and in the head."""
    import pyrt
    from pyrt.bench import bytes_per_token

    rows = pyrt.bench(model, n_prompt=0, n_gen=8, threads=threads, repetitions=1, **options)
    step_bytes: dict[str, int] = {}
    layers = {"int8": 0, "float": 0}
    head = dict(layers)
    with pyrt.load(model, threads=threads, context_length=_context(tests), **options) as loaded:
        for test in map(parse, tests):
            if test.phase == "tg":  # the weights once, K and V for each sequence
                alone = bytes_per_token(loaded, test.depth + 1 + test.n // 2)
                step_bytes[test.name] = alone + (test.batch - 1) * (alone - bytes_per_token(loaded, 0))
        names = [name for name, *_ in loaded.tensors]
        for name, layout, n_rows, n_columns, _ in loaded.tensors:
            kind = "int8" if layout.startswith("W") else "float"
            if name == ("head" if "head" in names else "embed"):
                head[kind] += n_rows * n_columns
            elif name.startswith("layers.") and n_rows > 1:
                layers[kind] += n_rows * n_columns
        return {
            "read_gb_per_s": rows[0].read_gb_per_s,
            "step_bytes": step_bytes,
            "layers": layers,
            "head": head,
            "isa": loaded.info.isa,
        }


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    import pyrt

    for chunk in pyrt.stream(prompt, model=model, threads=threads, max_tokens=8, temperature=0.0, **options):
        yield chunk.text
