"""llama-cpp-python's side of the comparisons; runs under the peer's own Python and prints one line of JSON.

peer/bin/python bench/peer_llama.py speed MODEL THREADS N_PROMPT N_GEN REPETITIONS
peer/bin/python bench/peer_llama.py perplexity MODEL TEXT N_CTX
peer/bin/python bench/peer_llama.py first-token MODEL THREADS PROMPT      (prints the text instead)
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

import llama_cpp
import numpy as np


def open_model(path: str, **options: Any) -> llama_cpp.Llama:
    return llama_cpp.Llama(path, verbose=False, n_gpu_layers=0, **options)


def speed(path: str, threads: str, n_prompt: str, n_gen: str, repetitions: str) -> dict[str, Any]:
    """Tokens per second of prompts of random ids and of greedy generation, by repetition after a warm-up."""
    n_threads, p, n = int(threads), int(n_prompt), int(n_gen)
    n_ctx = max(p, n) + 32
    llama = open_model(path, n_ctx=n_ctx, n_batch=512, n_threads=n_threads, n_threads_batch=n_threads)
    numbers = np.random.default_rng(0)
    prefill, decode = [], []
    for repetition in range(int(repetitions) + 1):
        prompt = numbers.integers(0, llama.n_vocab(), p).tolist()
        llama.reset()
        began = time.perf_counter()
        llama.eval(prompt)
        llama.sample(temp=0.0)
        prefill.append(p / (time.perf_counter() - began))

        llama.reset()
        stream = llama.generate(prompt[:1], temp=0.0, reset=True)
        next(stream)
        began = time.perf_counter()
        for _ in range(n):
            next(stream)
        decode.append(n / (time.perf_counter() - began))
        if repetition == 0:
            prefill.clear()
            decode.clear()
    return {"prefill": prefill, "decode": decode, **build()}


def perplexity(path: str, text: str, n_ctx: str) -> dict[str, Any]:
    """As llama.cpp's tools/perplexity: whole windows, BOS first if the model adds it, second half scored."""
    size = int(n_ctx)
    llama = open_model(path, n_ctx=size, n_batch=size, logits_all=True)
    with open(text, "rb") as file:
        tokens = llama.tokenize(file.read(), add_bos=True, special=False)
    vocabulary = llama_cpp.llama_model_get_vocab(llama.model)
    adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(vocabulary))
    scores = []
    for start in range(0, len(tokens) // size * size, size):
        window = tokens[start : start + size]
        if adds_bos:
            window[0] = llama.token_bos()
        llama.reset()
        llama.eval(window)
        for position in range(size // 2, size - 1):
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


def first_token(path: str, threads: str, prompt: str) -> None:
    llama = open_model(path, n_threads=int(threads), n_threads_batch=int(threads))
    for chunk in llama(prompt, max_tokens=8, temperature=0.0, stream=True):
        if text := chunk["choices"][0]["text"]:
            print(text, end="", flush=True)
            return


def build() -> dict[str, str]:
    return {
        "version": f"llama-cpp-python {llama_cpp.__version__}",
        "build": llama_cpp.llama_print_system_info().decode().strip(),
    }


if __name__ == "__main__":
    jobs = {"speed": speed, "perplexity": perplexity, "first-token": first_token}
    result = jobs[sys.argv[1]](*sys.argv[2:])
    if result is not None:
        print(json.dumps(result))
