"""Facts that any right attention shows: it sees a set, not a sequence, until positions or a mask order it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.transformer import Transformer

N, D, HEADS, KV_HEADS, HEAD_DIM = 24, 48, 4, 2, 16
POSITIONS = np.arange(N)


def attention_layer(rope_layout: str) -> Transformer:
    rng = np.random.default_rng(0)
    rows = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
    tensors = {f"layers.0.{name}": rng.normal(size=(n, D)) / D**0.5 for name, n in rows.items()}
    tensors["layers.0.o"] = rng.normal(size=(D, HEADS * HEAD_DIM)) / D**0.5
    tensors["rope.0"] = np.float32(10000.0) ** (-np.arange(0, HEAD_DIM, 2, dtype=np.float32) / HEAD_DIM)
    knobs: dict[str, Any] = {
        "n_heads": HEADS, "n_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "qk_norm": False,
        "attn_scale": HEAD_DIM**-0.5, "rope_layout": rope_layout, "rope_dim": HEAD_DIM, "layer_rope": [0],
        "layer_window": [0],
    }  # fmt: skip
    return Transformer(knobs, tensors)


def gap(rope_layout: str, causal: bool) -> float:
    """How far attention(shuffled x) is from shuffled attention(x), relative to the size of the output."""
    rng = np.random.default_rng(1)
    x, order, layer = rng.normal(size=(N, D)), rng.permutation(N), attention_layer(rope_layout)
    straight = layer.attention(0, x, POSITIONS, causal)
    shuffled = layer.attention(0, x[order], POSITIONS, causal)
    return float(np.abs(shuffled - straight[order]).max() / np.abs(straight).max())


def test_without_positions_and_mask_a_shuffled_input_gives_the_shuffled_output() -> None:
    assert gap("none", causal=False) < 1e-14


@pytest.mark.parametrize("rope_layout", ["half", "pairs"])
def test_with_positions_it_does_not(rope_layout: str) -> None:
    assert gap(rope_layout, causal=False) > 0.1


def test_with_the_mask_it_does_not() -> None:
    assert gap("none", causal=True) > 0.1


@pytest.mark.parametrize("rope_layout", ["half", "pairs"])
def test_only_distances_count(rope_layout: str) -> None:
    """Rope is relative: all positions moved by a power of two (exact in the float32 angle) change nothing."""
    x, layer = np.random.default_rng(2).normal(size=(N, D)), attention_layer(rope_layout)
    layer.tensors = dict(layer.tensors) | {"rope.0": np.float32(2.0) ** -np.arange(HEAD_DIM // 2)}
    here, there = (layer.attention(0, x, POSITIONS + offset) for offset in (0, 4096))
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-11)


@pytest.mark.parametrize("window", [1, 4])
def test_a_window_hides_all_that_is_older(window: int) -> None:
    x, layer = np.random.default_rng(3).normal(size=(N, D)), attention_layer("half")
    layer.knobs = dict(layer.knobs) | {"layer_window": [window]}
    before = layer.attention(0, x, POSITIONS)
    x[10] += 1
    changed = np.abs(layer.attention(0, x, POSITIONS) - before).max(-1) > 1e-9
    assert np.flatnonzero(changed).tolist() == list(range(10, 10 + window))
