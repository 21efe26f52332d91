"""mistral.rs' side: its Runner on the GGUF file. Speeds are those of its own usage figures.

Its API takes text only, so prompts are of words and measured by the tokens that it counted itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers.spec import Case, measure, only_single

WORDS = ("time", "house", "water", "people", "light", "green", "stone", "music")


def open_runner(model: str, threads: int) -> Any:
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    import mistralrs

    path = Path(model)
    which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
    return mistralrs.Runner(which=which, max_seqs=1, no_kv_cache=False, prefix_cache_n=0)


def request(prompt: str, max_tokens: int) -> Any:
    import mistralrs

    return mistralrs.CompletionRequest(model="default", prompt=prompt, max_tokens=max_tokens, temperature=0.0)


def text_of(n_tokens: int, seed: int) -> str:
    """About so many tokens; a different beginning keeps it out of caches."""
    return " ".join(WORDS[(seed + i * i) % len(WORDS)] for i in range(n_tokens))


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    runner = open_runner(model, threads)
    seeds = iter(range(1 << 30))

    def run(test: Case) -> float:
        only_single(test)
        n_prompt, n_gen = (test.n, 1) if test.phase == "pp" else (1, test.n + 1)
        usage = runner.send_completion_request(request(text_of(n_prompt, next(seeds)), n_gen)).usage
        if test.phase == "pp":
            return float(usage.prompt_tokens / usage.total_prompt_time_sec)
        if usage.completion_tokens < n_gen // 2:
            raise RuntimeError(f"it ended after {usage.completion_tokens} tokens")
        return float(usage.completion_tokens / usage.total_completion_time_sec)

    runner.send_completion_request(request(text_of(64, next(seeds)), 8))
    about = {"version": f"mistralrs {version('mistralrs')}", "build": "the wheel's"}
    return {**measure(tests, run, repetitions), **about}


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    """It does not stream completions: one token is asked for."""
    runner = open_runner(model, threads)
    yield runner.send_completion_request(request(prompt, 1)).choices[0].text
