"""Runs token sequences through the bare core: packing, pages and steps, with every freedom a caller has."""

from __future__ import annotations

from typing import Any

import numpy as np
from reference import quants

from pyrt import _core

PAGE = _core.KvCache.PAGE_TOKENS


def build(
    knobs: dict[str, Any], tensors: dict[str, np.ndarray], types: dict[str, str], seed: int = 0
) -> _core.Model:
    """A core model of float tensors; those whose last name part is in ``types`` become that type: floats are
    rounded to it, quantized types are random blocks of about the tensor's size."""
    rng = np.random.default_rng(seed)
    builder = _core.ModelBuilder(knobs, 2)
    for name, tensor in tensors.items():
        rows, cols = tensor.shape if tensor.ndim == 2 else (1, tensor.size)
        format = types.get(name.split(".")[-1], "F32") if tensor.ndim == 2 else "F32"
        data = tensor if format == "F32" else _blocks(format, tensor, rng)
        builder.add(name, format, rows, cols, np.ascontiguousarray(data))
    return builder.build()


def _blocks(format: str, like: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    quant = quants.QUANTS[format]
    if quant.values == 1:
        return quants.quantize(format, like)
    blocks = quants.random_blocks(format, like.size // quant.values, rng)
    for at in quant.halves_at:
        magnitude = rng.uniform(0.5, 1.5, len(blocks)) * like.std() / 64
        blocks[:, at : at + 2] = magnitude.astype(np.float16)[:, None].view(np.uint8)
    return blocks


class Machine:
    """A model on one ISA and thread count, with its own cache; pages are dealt out in a shuffled order."""

    def __init__(
        self, model: _core.Model, isa: str, threads: int, kv_dtype: str = "f16", pages: int = 64
    ) -> None:
        self.cache = _core.KvCache(model, kv_dtype)
        for group in range(len(self.cache.groups)):
            self.cache.resize(group, pages)
        self.runner = _core.Runner(model, self.cache, isa, threads)
        self.free = [
            list(np.random.default_rng(7 + g).permutation(pages)) for g in range(len(self.cache.groups))
        ]

    def tables(self, n_tokens: list[int]) -> list[np.ndarray]:
        """Page tables for sequences of these lengths, on pages of their own."""
        most = max(-(-n // PAGE) for n in n_tokens)
        tables = [np.full((len(n_tokens), most), -1, np.int32) for _ in self.free]
        for table, free in zip(tables, self.free, strict=True):
            for row, n in zip(table, n_tokens, strict=True):
                for page in range(-(-n // PAGE)):
                    row[page] = free.pop()
        return tables

    def step(self, spans: list[tuple[int, int, np.ndarray]], tables: list[np.ndarray]) -> np.ndarray:
        """One step over (sequence, first position, tokens) spans; logits of all rows."""
        tokens = np.concatenate([t for _, _, t in spans]).astype(np.int32)
        positions = np.concatenate([np.arange(p, p + len(t)) for _, p, t in spans]).astype(np.int32)
        sequences = np.concatenate([np.full(len(t), s) for s, _, t in spans]).astype(np.int32)
        want = np.ones(len(tokens), np.uint8)
        return self.runner.step(tokens, positions, sequences, want, tables).logits

    def logits(self, tokens: np.ndarray, chunk: int) -> np.ndarray:
        """All logits of one sequence, ``chunk`` tokens a step."""
        tables = self.tables([len(tokens)])
        steps = range(0, len(tokens), chunk)
        return np.concatenate([self.step([(0, at, tokens[at : at + chunk])], tables) for at in steps])
