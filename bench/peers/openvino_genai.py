"""OpenVINO GenAI's side: LLMPipeline on the GGUF file itself. Speeds are those of its own metrics.

Options: properties of the CPU device, as ``KV_CACHE_PRECISION=f16`` (its default are 8 bits).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import openvino
import openvino_genai

from peers.spec import Case, measure


def open_pipeline(model: str, threads: int, options: dict[str, str]) -> Any:
    return openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads, **options)


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    pipeline = open_pipeline(model, threads, options)
    numbers = random.Random(0)
    n_vocab = len(pipeline.get_tokenizer().get_vocab())

    def generate(batch: int, n_prompt: int, n_gen: int) -> Any:
        rows = [numbers.choices(range(n_vocab), k=n_prompt) for _ in range(batch)]
        ids = openvino.Tensor(np.array(rows, np.int64))
        mask = openvino.Tensor(np.ones((batch, n_prompt), np.int64))
        config = openvino_genai.GenerationConfig(max_new_tokens=n_gen, ignore_eos=True)
        config.apply_chat_template = False
        return pipeline.generate(openvino_genai.TokenizedInputs(ids, mask), config).perf_metrics

    def run(test: Case) -> float:
        if test.phase == "pp":
            if test.depth:
                raise NotImplementedError("its API does not tell a prompt from what is cached of it")
            return test.n / generate(1, test.n, 1).get_ttft().mean * 1e3
        found = generate(test.batch, test.depth + 1, test.n + 1)
        milliseconds = found.get_generate_duration().mean - found.get_ttft().mean
        return test.n * test.batch / milliseconds * 1e3

    generate(1, 64, 8)
    about = {"version": f"openvino-genai {openvino_genai.__version__}"}
    return {**measure(tests, run, repetitions), **about, "build": f"openvino {openvino.__version__}"}


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    pipeline = open_pipeline(model, threads, options)
    texts: list[str] = []

    def take(text: str) -> Any:
        texts.append(text)
        status = openvino_genai.StreamingStatus
        return status.STOP if text else status.RUNNING

    config = openvino_genai.GenerationConfig(max_new_tokens=8)
    config.apply_chat_template = False
    pipeline.generate(prompt, config, take)
    yield "".join(texts)
