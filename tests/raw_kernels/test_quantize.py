"""The quantizer of activations, bit for bit: q = rne(x * (127 / amax)) in groups of 32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import kernels as reference

from raw_kernels import calls, exact, inputs

Array = np.ndarray
f32 = np.float32


def judge(isa: Any, x: Array, n: int, k: int) -> exact.Acts:
    flag, got = calls.quantize(isa, x, n, k)
    assert flag == 0
    expected = exact.quantize(x[:, :n], k)
    for name, a, b in zip(exact.Acts._fields, got, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
    padded = np.pad(x[:, :n], ((0, 0), (0, k - n)))
    values = got.q * np.repeat(got.scale.astype(np.float64), 32, axis=1)
    assert (np.abs(values - padded) <= reference.quantization_bound(padded)).all()
    assert np.abs(got.q.astype(int)).max(initial=0) <= 127
    return got


@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 200, 333, 512])
def test_tails(isa: Any, n: int) -> None:
    """Values beyond n and groups beyond the row are zeros; what stands behind n in the row is not read."""
    x = inputs.normal(inputs.generator("quantize", n), 5, n + 3)
    x[:, n:] = np.nan
    got = judge(isa, x, n, -(-n // 256) * 256)
    assert not got.q[:, n:].any()
    assert not got.scale[:, -(-n // 32) :].any()


@pytest.mark.parametrize("amax", [2.0**-119, 2.0**-60, 1e-6, 1.0, 127.0, 3e4, 3e38])
def test_ties_go_to_even(isa: Any, amax: float) -> None:
    """Values at half steps of the scale, and next to them."""
    halves = ((np.arange(31) * 8 - 120) + 0.5) / 127 * amax
    x = np.stack(
        [np.append(halves, amax), np.append(np.nextafter(halves, 1e39), amax), np.append(halves, -amax)]
    )
    judge(isa, x.astype(f32), 32, 64)


def test_exact_ties(isa: Any) -> None:
    x = np.append(np.arange(31) - 15.5, 127).astype(f32)[None]
    got = judge(isa, x, 32, 64)
    np.testing.assert_array_equal(got.q[0, :31], np.rint(np.arange(31) - 15.5))


def test_every_exponent(isa: Any) -> None:
    """From denormals, which become zeros below 2^-120, to the largest floats."""
    exponents = np.arange(-149, 128)
    x = inputs.normal(inputs.generator("exponents"), len(exponents), 32).astype(np.float64)
    x /= np.abs(x).max(axis=1, keepdims=True)
    got = judge(isa, (x * np.exp2(exponents)[:, None]).astype(f32), 32, 64)
    small = exponents < -120
    assert not got.q[small].any()
    assert not got.scale[small].any()
    assert (np.abs(got.q[~small]).max(axis=1) == 127).all()


def test_the_least_scale(isa: Any) -> None:
    least = f32(2.0**-120)
    x = np.zeros((2, 32), f32)
    x[0, 3], x[1, 3] = least, np.nextafter(least, f32(0))
    got = judge(isa, x, 32, 64)
    assert got.q[0, 3] == 127
    assert got.scale[0, 0] > 0
    assert not got.q[1].any()
    assert got.scale[1, 0] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -np.nan])
@pytest.mark.parametrize("at", [0, 15, 16, 31, 69])
def test_non_finite_values_are_reported(isa: Any, at: int, value: float) -> None:
    x = inputs.normal(inputs.generator("non-finite"), 3, 70)
    assert calls.quantize(isa, x, 70, 128)[0] == 0
    x[1, at] = value
    assert calls.quantize(isa, x, 70, 128)[0] != 0


def test_zeros(isa: Any) -> None:
    for field in judge(isa, np.zeros((2, 64), f32), 64, 64):
        assert not field.any()
