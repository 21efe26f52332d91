"""llama-cpp-python's side.

Speed is that of the C API (see llama_runner.py), the first token that of the class Llama.
Options: ``flash_attn=0|1`` and ``kv_unified=0|1`` (default: llama.cpp's own choice).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import llama_cpp

from peers.llama_runner import Runner
from peers.spec import measure


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    runner = Runner(llama_cpp, model, threads, tests, options)
    return {**measure(tests, runner.run, repetitions), **build()}


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    more: dict[str, Any] = {"flash_attn": options["flash_attn"] == "1"} if "flash_attn" in options else {}
    llama = open_model(model, n_threads=threads, n_threads_batch=threads, **more)
    for chunk in llama(prompt, max_tokens=8, temperature=0.0, stream=True):
        yield chunk["choices"][0]["text"]


def perplexity(model: str, text: str, n_ctx: int) -> dict[str, Any]:
    """As llama.cpp's tools/perplexity: whole windows, BOS first if the model adds it, second half scored."""
    import numpy as np

    llama = open_model(model, n_ctx=n_ctx, n_batch=n_ctx, logits_all=True)
    with open(text, "rb") as file:
        tokens = llama.tokenize(file.read(), add_bos=True, special=False)
    vocabulary = llama_cpp.llama_model_get_vocab(llama.model)
    adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(vocabulary))
    scores = []
    for start in range(0, len(tokens) // n_ctx * n_ctx, n_ctx):
        window = tokens[start : start + n_ctx]
        if adds_bos:
            window[0] = llama.token_bos()
        llama.reset()
        llama.eval(window)
        for position in range(n_ctx // 2, n_ctx - 1):
            row = llama.scores[position].astype(np.float64)
            top = row.max()
            scores.append(row[window[position + 1]] - top - np.log(np.exp(row - top).sum()))
    return {
        "perplexity": float(np.exp(-np.mean(scores))),
        "n_scored": len(scores),
        "n_tokens": len(tokens),
        "tokens_sha256": hashlib.sha256(np.array(tokens, np.int32).tobytes()).hexdigest(),
        **build(),
    }


def open_model(path: str, **options: Any) -> Any:
    return llama_cpp.Llama(path, verbose=False, n_gpu_layers=0, **options)


def build() -> dict[str, str]:
    return {
        "version": f"llama-cpp-python {llama_cpp.__version__}",
        "build": llama_cpp.llama_print_system_info().decode().strip(),
    }
