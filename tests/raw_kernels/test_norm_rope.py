"""RMSNorm, LayerNorm, rotary positions, sums: the contract's lanes and tree bit for bit, near float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import kernels as reference

from raw_kernels import calls, exact, inputs

f32 = np.float32
SIZES = [1, 2, 15, 16, 17, 31, 32, 48, 100, 333, 576, 2048]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_rms_norm(isa: Any, n: int, in_place: bool) -> None:
    rng = inputs.generator("rms", n)
    x, w = inputs.normal(rng, n, scale=3), inputs.normal(rng, n)
    flag, got = calls.norm(isa.rms_norm, x, w, eps=1e-5, in_place=in_place)
    assert flag == 0
    np.testing.assert_array_equal(got, exact.rms_norm(x, w, 1e-5))
    assert reference.rms_norm(x, w, 1e-5).holds(got)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n", SIZES)
def test_layer_norm(isa: Any, n: int, bias: bool) -> None:
    rng = inputs.generator("layer", n)
    x, w = inputs.normal(rng, n, scale=3) + f32(1.5), inputs.normal(rng, n)
    b = inputs.normal(rng, n) if bias else None
    for in_place in (False, True):
        flag, got = calls.norm(isa.layer_norm, x, w, b, eps=1e-5, in_place=in_place)
        assert flag == 0
        np.testing.assert_array_equal(got, exact.layer_norm(x, w, b, 1e-5))
        assert reference.layer_norm(x, w, b, 1e-5).holds(got)


@pytest.mark.parametrize("size", [1e-22, 1e-6, 1e6, 1e15])
def test_sizes(isa: Any, size: float) -> None:
    rng = inputs.generator("norm sizes", size)
    x, w = inputs.normal(rng, 100, scale=size), inputs.normal(rng, 100)
    flag, got = calls.norm(isa.rms_norm, x, w, eps=1e-6)
    assert flag == 0
    np.testing.assert_array_equal(got, exact.rms_norm(x, w, 1e-6))
    assert reference.rms_norm(x, w, 1e-6).holds(got)
    flag, got = calls.norm(isa.layer_norm, x, w, w, eps=1e-6)
    assert flag == 0
    np.testing.assert_array_equal(got, exact.layer_norm(x, w, w, 1e-6))
    assert reference.layer_norm(x, w, w, 1e-6).holds(got)


def test_zeros(isa: Any) -> None:
    w, b = (inputs.normal(inputs.generator("norm zeros", i), 40) for i in range(2))
    assert not calls.norm(isa.rms_norm, np.zeros(40, f32), w, eps=1e-5)[1].any()
    np.testing.assert_array_equal(calls.norm(isa.layer_norm, np.zeros(40, f32), w, b, eps=1e-5)[1], b)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 15, 16, 36])
def test_non_finite_values_are_reported(isa: Any, at: int, value: float) -> None:
    rng = inputs.generator("norm non-finite")
    x, w = inputs.normal(rng, 37), inputs.normal(rng, 37)
    x[at] = value
    assert calls.norm(isa.rms_norm, x, w, eps=1e-5)[0] != 0
    assert calls.norm(isa.layer_norm, x, w, w, eps=1e-5)[0] != 0


@pytest.mark.parametrize(
    ("heads", "head_dim", "pairs"),
    [(1, 2, 1), (3, 64, 32), (2, 80, 36), (5, 48, 8), (2, 256, 128), (2, 34, 17)],
)
def test_rope(isa: Any, heads: int, head_dim: int, pairs: int) -> None:
    """Only the first 2 * pairs values of a head turn."""
    rng = inputs.generator("rope", heads, head_dim)
    x, angle = inputs.normal(rng, heads, head_dim), rng.uniform(0, 7, pairs)
    cos, sin = np.cos(angle).astype(f32), np.sin(angle).astype(f32)
    got = calls.rope(isa, x, cos, sin)
    np.testing.assert_array_equal(got, exact.rope(x, cos, sin))
    np.testing.assert_array_equal(got[:, 2 * pairs :], x[:, 2 * pairs :])
    assert reference.rope(x, cos, sin).holds(got)


def test_rope_of_position_zero_changes_nothing(isa: Any) -> None:
    x = inputs.normal(inputs.generator("rope zero"), 2, 64)
    np.testing.assert_array_equal(calls.rope(isa, x, np.ones(32, f32), np.zeros(32, f32)), x)


@pytest.mark.parametrize("n", SIZES)
def test_add_and_scale(isa: Any, n: int) -> None:
    """One rounding each, as NumPy's float32 has it."""
    rng = inputs.generator("sums", n)
    x, y = inputs.normal(rng, n), inputs.normal(rng, n)
    np.testing.assert_array_equal(calls.add(isa, x, y), x + y)
    for in_place in (False, True):
        np.testing.assert_array_equal(calls.scale(isa, x, 0.37, in_place), x * f32(0.37))
