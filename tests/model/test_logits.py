"""The core's logits against the NumPy reference, for every family, weight type and cache type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model.stepping import Machine
from reference.stored import Stored, store
from reference.tiny import Model, tiny
from reference.to_gguf import as_type, write_gguf
from reference.transformer import Transformer, rounding_error, same

from pyrt import _core, params
from pyrt.config import read_config
from pyrt.gguf import open_gguf
from pyrt.weights import map_weights

FAMILIES = ["llama", "gemma3", "gpt2"]
QUANTIZED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def built(knobs: dict[str, Any], stored: dict[str, Stored]) -> _core.Model:
    builder = _core.ModelBuilder(knobs, 1)
    for name, (form, data, means) in stored.items():
        rows, cols = means.shape if means.ndim == 2 else (1, means.size)
        builder.add(name, form, rows, cols, data)
    return builder.build()


def machine(knobs: dict[str, Any], stored: dict[str, Stored], kv_dtype: str = "f32") -> Machine:
    return Machine(built(knobs, stored), "", 1, kv_dtype)


def wide(family: str) -> Model:
    """Every matrix has rows of a multiple of 256, as the K types need."""
    head = {} if family == "gpt2" else {"head_dim": 64}
    return tiny(family, d_model=256, d_ff=512, **head)


def tokens(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 300, n).astype(np.int32)


def activation_codes(x: np.ndarray) -> np.ndarray:
    """int8 with one scale for 32 values: round(x * (127 / amax)) * (amax / 127), in float32."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(groups).max(-1, keepdims=True)
    codes = np.rint(groups * (np.float32(127) / amax))
    return (codes * (amax / np.float32(127))).reshape(x.shape).astype(x.dtype)


@pytest.mark.parametrize("form", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_float_weights(family: str, form: str) -> None:
    """Float weights lose nothing but float32 rounding, beyond one split of 512 keys and in odd chunks."""
    knobs, tensors = tiny(family, tied=False, biases=True, n_vocab=301, d_ff=150, **positions(family))
    stored = store((knobs, tensors), form)
    means = {name: tensor.means for name, tensor in stored.items()}
    ids = tokens(530)
    exact = Transformer(knobs, means).logits(ids)
    error = np.abs(machine(knobs, stored).logits(ids, 300) - exact)
    assert error.max() <= 4 * np.abs(Transformer(knobs, means, np.float32).logits(ids) - exact).max()


def positions(family: str) -> dict[str, int]:
    return {"n_positions": 640} if family == "gpt2" else {}


@pytest.mark.parametrize("form", QUANTIZED)
@pytest.mark.parametrize("family", FAMILIES)
def test_quantized_weights(family: str, form: str) -> None:
    """With the reference's inputs rounded to the same int8 codes, only float32 rounding is left.

    It can push a value over the edge between two codes: in a few of many short sequences, which then differ
    by less than what the codes as such cost.
    """
    knobs, tensors = wide(family)
    stored = store((knobs, tensors), form)
    means = {name: tensor.means for name, tensor in stored.items()}

    def rounded(name: str, x: np.ndarray) -> np.ndarray:
        return activation_codes(x) if name in stored else x

    sequences = [tokens(3, seed) for seed in range(20)]
    m = machine(knobs, stored)
    rows = m.step([(i, 0, ids) for i, ids in enumerate(sequences)], m.tables([3] * 20))
    coded = np.concatenate([Transformer(knobs, means, rounded=rounded).logits(ids) for ids in sequences])
    exact = np.concatenate([Transformer(knobs, means).logits(ids) for ids in sequences])
    error = np.abs(rows - coded).reshape(20, -1).max(-1)
    bound = 8 * max(rounding_error(knobs, means, ids).max() for ids in sequences[:3])
    assert np.mean(error <= bound) >= 0.6
    assert error.max() <= 2 * np.abs(coded - exact).max()


def f16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(x.dtype)


def int8_heads(x: np.ndarray) -> np.ndarray:
    """One scale for the key or value of a token in one head."""
    x32 = x.astype(np.float32)
    amax = np.abs(x32).max(-1, keepdims=True)
    return (np.rint(x32 * (np.float32(127) / amax)) * (amax / np.float32(127))).astype(x.dtype)


@pytest.mark.parametrize(("kv_dtype", "rounding"), [("f16", f16), ("int8", int8_heads)])
@pytest.mark.parametrize("family", FAMILIES)
def test_cache_types(family: str, kv_dtype: str, rounding: Callable[[np.ndarray], np.ndarray]) -> None:
    """A smaller cache costs what rounding keys and values once costs, and hardly anything besides."""
    knobs, tensors = tiny(family)
    ids = tokens(100)
    got = machine(knobs, store((knobs, tensors), "F32"), kv_dtype).logits(ids, 33)

    def rounded(name: str, x: np.ndarray) -> np.ndarray:
        return rounding(x) if name in ("key", "value") else same(name, x)

    exact = Transformer(knobs, tensors).logits(ids)
    coded = Transformer(knobs, tensors, rounded=rounded).logits(ids)
    cost = rms(coded - exact)
    # float32 rounding pushes some keys and values to the neighbouring number
    assert rms(got - coded) <= cost / 3
    assert 0.9 * cost <= rms(got - exact) <= 1.1 * cost


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


@pytest.mark.parametrize("form", ["F32", "Q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_from_a_gguf_file(family: str, form: str, tmp_path: Path) -> None:
    """The whole way from a file: permuted or fused rows, the header's knobs, the sizes that are foretold."""
    knobs, tensors = wide(family)
    path = write_gguf(tmp_path / "m.gguf", family, knobs, tensors, as_type(form))
    with open_gguf(path) as source:
        config = read_config(source)
        builder = _core.ModelBuilder(config.knobs, 1)
        stored = {}
        for name, kind, rows, cols, data, mapped in map_weights(source, config):
            builder.add_all([(name, kind, rows, cols, data, "", mapped)])  # drops the pages, not the data
            means = _core.dequantize(kind, data, rows * cols)
            stored[name] = Stored(kind, data, means if rows == 1 else means.reshape(rows, cols))
        model = builder.build()
    ids = tokens(50)
    got = Machine(model, "", 1, "f32").logits(ids, 50)
    means = {name: tensor.means for name, tensor in stored.items()}
    exact = Transformer(config.knobs, means).logits(ids)

    def rounded(name: str, x: np.ndarray) -> np.ndarray:
        return activation_codes(x) if name in stored else x

    coded = Transformer(config.knobs, means, rounded=rounded).logits(ids)
    cost = (
        2 * np.abs(coded - exact).max()
        if form == "Q8_0"
        else 4 * rounding_error(config.knobs, means, ids).max()
    )
    assert np.abs(got - exact).max() <= cost
    forms = {name: tensor.form for name, tensor in stored.items()}
    assert params.packed_nbytes(config, forms) == sum(nbytes for *_, nbytes in model.tensors)


@pytest.mark.parametrize("form", ["F32", "F16", "BF16", *QUANTIZED])
def test_packed_sizes_are_foretold(form: str, tmp_path: Path) -> None:
    """The vocabulary fills no whole panel of 16 rows, and 256 columns are the least that all types store."""
    knobs, tensors = tiny("llama", n_vocab=301, d_model=256, n_heads=4, head_dim=64, d_ff=512)
    with open_gguf(write_gguf(tmp_path / "m.gguf", "llama", knobs, tensors)) as source:
        config = read_config(source)
    model = built(knobs, store((knobs, tensors), form))
    assert params.packed_nbytes(config, form) == sum(nbytes for *_, nbytes in model.tensors)


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "int8"])
def test_cache_sizes_are_foretold(kv_dtype: str, tmp_path: Path) -> None:
    knobs, tensors = tiny("gemma3", head_dim=40)
    with open_gguf(write_gguf(tmp_path / "m.gguf", "gemma3", knobs, tensors)) as source:
        config = read_config(source)
    groups = machine(knobs, store((knobs, tensors), "F32"), kv_dtype).cache.groups
    page = sum(group["page_bytes"] for group in groups)
    assert params.kv_token_nbytes(config, kv_dtype) * 32 == page
    assert params.kv_nbytes(config, 32, kv_dtype) == page
