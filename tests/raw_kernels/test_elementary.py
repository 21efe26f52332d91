"""exp and what is made of it, and the conversion to f16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import kernels as reference

from raw_kernels import calls, exact, inputs
from raw_kernels.ctable import table

Array = np.ndarray
f32 = np.float32
ACTIVATIONS = {"silu": reference.silu, "gelu_tanh": reference.gelu_tanh, "gelu_erf": reference.gelu_erf}


def line(low: float, high: float, n: int = 20011) -> Array:
    return np.linspace(low, high, n).astype(f32)


def test_exp_is_within_its_error(isa: Any) -> None:
    x = np.concatenate([line(-80, 88), line(-1, 1), line(-1e-3, 1e-3), line(87.9, 88)])
    assert reference.exp(x).holds(calls.exp(isa, x))


def test_exp_is_exact_where_promised(isa: Any) -> None:
    below = np.array(
        [np.nextafter(f32(-80), f32(-100)), -80.5, -87, -88, -103, -104, -1e4, -3e38, -np.inf], f32
    )
    got = calls.exp(isa, below)
    assert (got.view(np.uint32) == 0).all(), "+0 below -80"
    zero = np.array([0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-30, -(2.0**-30)], f32)
    assert (calls.exp(isa, zero) == 1).all()
    least = calls.exp(isa, np.array([-80.0], f32))[0]
    assert least >= 2.0**-126, "no denormal ever"
    assert reference.exp(np.array([-80.0], f32)).holds(np.array([least]))


def test_exp_stays_finite_and_never_falls(isa: Any) -> None:
    got = calls.exp(isa, np.array([88, 88.5, 89, 1e10, 3e38, np.inf], f32))
    assert np.isfinite(got).all()
    assert (got == got[0]).all()
    # Rounding may turn neighbours around by one unit; over a step of 2^-16 e^x grows by more than its error.
    steps = np.arange(-80 * 2**16, 88 * 2**16, 37) * f32(2.0**-16)
    assert (np.diff(calls.exp(isa, steps.astype(f32))) >= 0).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_near_float64(isa: Any, name: str) -> None:
    x = np.concatenate(
        [line(-100, 100), line(-10, 10), line(-1, 1), line(-1e-4, 1e-4), np.array([1e30, -1e30, 0], f32)]
    )
    got = calls.gated(getattr(isa, name), x, None)
    assert ACTIVATIONS[name](x).holds(got)
    np.testing.assert_array_equal(got, calls.gated(getattr(table("scalar"), name), x, None))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 333])
def test_gates(isa: Any, name: str, n: int) -> None:
    rng = inputs.generator("gate", name, n)
    g, u = inputs.normal(rng, n, scale=4), inputs.normal(rng, n)
    kernel = getattr(isa, name)
    expected = calls.gated(kernel, g, None) * u
    for onto in ("", "g", "u"):
        np.testing.assert_array_equal(calls.gated(kernel, g, u, onto), expected)
    assert reference.gated(ACTIVATIONS[name], g, u).holds(expected)


@pytest.mark.parametrize("scale", [1.0, 0.37, -1.0])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100, 256])
def test_max_sum_exp(isa: Any, n: int, scale: float) -> None:
    x = inputs.normal(inputs.generator("max", n), n, scale=9)
    top, total = calls.max_sum_exp(isa, x, scale)
    expected_top, expected_total = exact.max_sum_exp(x, scale, lambda v: calls.exp(isa, v))
    assert top == expected_top
    assert total == expected_total
    true_top, true_total = reference.max_sum_exp(x, scale)
    assert top == true_top
    assert true_total.holds(np.array(total))


def test_max_sum_exp_of_equal_and_far_values(isa: Any) -> None:
    assert calls.max_sum_exp(isa, np.full(37, -5e5, f32), 1.0) == (-5e5, 37)
    far = np.full(37, -200, f32)
    far[20] = 0
    assert calls.max_sum_exp(isa, far, 1.0) == (0, 1)


def test_max_sum_exp_where_candidates_are_ruled_out(isa: Any) -> None:
    """-inf weighs nothing, and of nothing but -inf the sum is 0."""
    x = inputs.normal(inputs.generator("ruled out"), 37)
    x[:36] = -np.inf
    assert calls.max_sum_exp(isa, x, 1.0) == (x[36], 1)
    assert calls.max_sum_exp(isa, np.full(37, -np.inf, f32), 0.5) == (-np.inf, 0)


def test_every_f16_comes_back(isa: Any) -> None:
    patterns = np.arange(65536, dtype=np.uint16)
    patterns = patterns[(patterns & 0x7C00) != 0x7C00]
    values = patterns.view(np.float16).astype(f32)
    count, got = calls.to_f16(isa, values)
    assert count == 0
    np.testing.assert_array_equal(got.view(np.uint16), patterns)


def test_f16_ties_and_neighbours(isa: Any) -> None:
    """Midpoints of neighbouring float16 values and the float32 values beside them: numpy rounds to even."""
    positive = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(f32)
    middle = (positive[:-1] + positive[1:]) / 2
    x = np.concatenate([middle, np.nextafter(middle, f32(np.inf)), np.nextafter(middle, f32(-np.inf))])
    x = np.concatenate([x, -x])
    count, got = calls.to_f16(isa, x)
    assert count == 0
    np.testing.assert_array_equal(got.view(np.uint16), x.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_f16_overflow_saturates_and_is_counted(isa: Any, n: int) -> None:
    x = inputs.normal(inputs.generator("overflow", n), n)
    too_large = [65505.0, 65520, 1e6, -65536, -3e38, np.inf, -np.inf, np.nan]
    fits = [65504.0, -65504]
    for value in too_large + fits:
        for at in {0, n // 2, n - 1}:
            y = x.copy()
            y[at] = value
            count, got = calls.to_f16(isa, y)
            assert count == (value in too_large), value
            assert np.isfinite(got).all()
            if not np.isnan(value):
                assert got[at] == np.copysign(65504, value)
            np.testing.assert_array_equal(np.delete(got, at), np.delete(x, at).astype(np.float16))
