"""Microseconds to choose a token, by sampler settings, over logits of a real model or of the same shape.

    python bench/sampling.py [MODEL.gguf] [-o table|json]

Without a model: 262,144 logits whose probabilities fall off as 1 / rank², about as steeply as language does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from array import array
from typing import Any

import numpy as np
from machine import ROOT, circumstances

from pyrt import SamplingParams, load
from pyrt.sampling import choose

N_VOCAB = 262_144
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 1, "top_k": 64},
    {"temperature": 1, "top_p": 0.95},
    {"temperature": 1, "top_k": 64, "top_p": 0.95},
    {"temperature": 1, "min_p": 0.05},
    {"temperature": 1, "top_k": 64, "top_p": 0.95, "repetition_penalty": 1.1},
    {"temperature": 1, "top_k": 64, "typical_p": 0.95},
]


def real_rows(model: str, n: int = 200) -> np.ndarray:
    text = (ROOT / "tests" / "data" / "english.txt").read_text("utf-8")
    with load(model) as loaded:
        return loaded.logits(loaded.tokenizer.encode(text)[:n])


def made_rows(n: int = 50) -> np.ndarray:
    rng = np.random.default_rng(0)
    falling = -2 * np.log(np.arange(1, N_VOCAB + 1))
    return np.array([rng.permutation(falling) for _ in range(n)], np.float32)


def microseconds(rows: np.ndarray, fields: dict[str, Any]) -> list[float]:
    samplers = SamplingParams(seed=0, **fields).samplers({})
    nobody = np.zeros(0, np.int64)
    starts = np.arange(0, rows.shape[1], 256)
    times = []
    for index, row in enumerate(rows):
        logits, block_max = row.copy(), np.maximum.reduceat(row, starts)
        tokens = array("i", range(1000 + index))
        began = time.perf_counter()
        choose(logits, block_max, tokens, 1000, samplers, nobody, 0)
        times.append((time.perf_counter() - began) * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    args = parser.parse_args()
    rows = real_rows(args.model) if args.model else made_rows()
    found = []
    for fields in SETTINGS:
        times = microseconds(rows, fields)
        found.append({"sampling": fields, "median_us": statistics.median(times), "max_us": max(times)})
    if args.output == "json":
        print(json.dumps({**circumstances(), "n_vocab": rows.shape[1], "rows": found}, indent=2))
        return
    print(f"{rows.shape[1]:,} logits, {len(rows)} rows: microseconds a token")
    for row in found:
        print(f"{row['median_us']:8.0f} median {row['max_us']:8.0f} most   {row['sampling']}")


if __name__ == "__main__":
    main()
