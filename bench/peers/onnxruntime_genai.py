"""ONNX Runtime GenAI's side, which reads its own folders. To make one, with onnx and onnx_ir:

    python bench/peers/gguf_to_folder.py MODEL.gguf HF_FOLDER
    python -m onnxruntime_genai.models.builder -i HF_FOLDER -o FOLDER -p int4 -e cpu \\
        --extra_options hf_token=false

Option: ``model=FOLDER``.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og

from peers.spec import Case, converted, measure


def open_model(threads: int, options: dict[str, str]) -> Any:
    config = og.Config(converted(options))
    session = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
    return og.Model(config)


def open_generator(model: Any, batch: int, length: int) -> Any:
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=batch, min_length=length, max_length=length, do_sample=False)
    return og.Generator(model, params)


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    loaded = open_model(threads, options)
    stored = json.loads((Path(options["model"]) / "genai_config.json").read_text())
    n_vocab = stored["model"]["vocab_size"]
    numbers = random.Random(0)

    def ids(batch: int, n: int) -> np.ndarray:
        return np.array([numbers.choices(range(n_vocab), k=n) for _ in range(batch)], np.int32)

    def run(test: Case) -> float:
        generator = open_generator(loaded, test.batch, test.context + 1)
        if test.phase == "pp":
            if test.depth:
                generator.append_tokens(ids(1, test.depth))
            prompt = ids(1, test.n)
            began = time.perf_counter()
            generator.append_tokens(prompt)
            generator.generate_next_token()
        else:
            generator.append_tokens(ids(test.batch, test.depth + 1))
            generator.generate_next_token()
            began = time.perf_counter()
            for _ in range(test.n):
                generator.generate_next_token()
        return test.n * test.batch / (time.perf_counter() - began)

    run(Case("warm up", "pp", 64, 1, 0))
    build = f"{Path(options['model']).name}: weights as converted, not the file's"
    return {
        **measure(tests, run, repetitions),
        "version": f"onnxruntime-genai {og.__version__}",
        "build": build,
    }


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    loaded = open_model(threads, options)
    tokenizer = og.Tokenizer(loaded)
    stream = tokenizer.create_stream()
    tokens = tokenizer.encode(prompt)
    generator = open_generator(loaded, 1, len(tokens) + 8)
    generator.append_tokens(tokens)
    while not generator.is_done():
        generator.generate_next_token()
        yield stream.decode(generator.get_next_tokens()[0])
