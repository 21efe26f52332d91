"""Packed codes x int8 activations, every layout x ISA: the contract's bits, and near float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import kernels as reference
from reference.kernels import Weights

from raw_kernels import calls, exact, inputs
from raw_kernels.packing import LAYOUTS, Layout, pack, pad_weights

pytestmark = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name.lower())


def judge(isa: Any, layout: Layout, w: Weights, acts: exact.Acts, gap: int = 0) -> np.ndarray:
    """Runs the kernel; the result must have the contract's bits and lie within the bound around float64."""
    got = calls.gemm_quantized(getattr(isa, layout.kernel), pack(layout, w), acts, gap)
    w = pad_weights(layout, w)
    np.testing.assert_array_equal(got, exact.gemm_quantized(w, acts))
    assert reference.gemm_quantized(w, acts.q, acts.scale).holds(got)
    return got


def padded_k(layout: Layout, k: int) -> int:
    return -(-k // layout.record) * layout.record


@pytest.mark.parametrize("rows", range(1, 18))
def test_every_count_of_rows(isa: Any, layout: Layout, rows: int) -> None:
    rng = inputs.generator("rows", layout.name, rows)
    k = padded_k(layout, 320)
    judge(isa, layout, inputs.weights(layout, 32, k, rng), inputs.acts(rows, k, k, rng), gap=5)


@pytest.mark.parametrize(("n", "k"), [(1, 32), (15, 64), (16, 96), (17, 256), (40, 544), (64, 768)])
def test_tails(isa: Any, layout: Layout, n: int, k: int) -> None:
    """n is no multiple of the panel, k none of the record; both are padded."""
    k = -(-k // 256) * 256 if layout.two_level else k
    rng = inputs.generator("tails", layout.name, n, k)
    w, acts = inputs.weights(layout, n, k, rng), inputs.acts(3, k, padded_k(layout, k), rng)
    got = judge(isa, layout, w, acts)
    assert not got[:, n:].any(), "rows beyond n must be zero"
    assert np.abs(got[:, :n]).min() > 0


def test_k_is_padded_with_zero_activations(isa: Any, layout: Layout) -> None:
    """n values that end inside a group: what stands beyond them in the weights does not count."""
    rng = inputs.generator("padding", layout.name)
    k = padded_k(layout, 512)
    w, x = inputs.weights(layout, 16, k, rng), inputs.normal(rng, 2, 461)
    flag, acts = calls.quantize(isa, x, 461, k)
    assert flag == 0
    got = judge(isa, layout, w, acts)
    zeroed = w._replace(codes=np.where(np.arange(k) < 461, w.codes, layout.zero).astype(np.uint8))
    plain = calls.gemm_quantized(getattr(isa, layout.kernel), pack(layout, zeroed), acts)
    np.testing.assert_array_equal(got, plain)


@pytest.mark.parametrize("sign", [-127, 127])
@pytest.mark.parametrize("code", ["least", "greatest"])
def test_extreme_codes_of_one_sign(isa: Any, layout: Layout, code: str, sign: int) -> None:
    """The greatest sums there are: where int16 saturates or wraps, it shows.  W8's least code means -128."""
    k = 512
    w = inputs.constant_weights(layout, 16, k, 0 if code == "least" else layout.largest_code)
    acts = inputs.acts_from_codes(np.full((5, k), sign, np.int8), np.ones((5, k // 32), np.float32))
    got = judge(isa, layout, w, acts)
    value = int(w.codes[0, 0]) - layout.zero
    if layout.minima:
        value += -1 if layout.two_level else 1
    assert (got == value * sign * k).all()  # small integers, exact in float32


@pytest.mark.parametrize("position", [0, 3, 4, 15, 16, 31, 32, 63])
def test_one_weight_at_a_time(isa: Any, layout: Layout, position: int) -> None:
    """Each code meets the activation of its own k: nibbles, planes, quads, lanes stand as the layout says."""
    n, k = 16, padded_k(layout, 64)
    w = inputs.constant_weights(layout, n, k, layout.zero)
    if layout.minima:
        w = w._replace(m=np.zeros_like(w.d))
    w.codes[:, position] = np.arange(n) * 5 % (layout.largest_code + 1)
    q = np.zeros((2, k), np.int8)
    q[0, position], q[1, (position + 1) % k] = 3, 7
    acts = inputs.acts_from_codes(q, np.ones((2, k // 32), np.float32))
    got = judge(isa, layout, w, acts)
    assert (got[0] == 3.0 * (w.codes[:, position].astype(int) - layout.zero)).all()
    assert not got[1].any()


@pytest.mark.parametrize(
    "weight_scale", [2.0**-24, 2.0**-14, 2.0**10], ids=["f16 subnormal", "f16 least normal", "large"]
)
@pytest.mark.parametrize("act_scale", [2.0**-127, 2.0**-20, 2.0**100], ids=["tiny", "small", "huge"])
def test_scales_from_tiny_to_huge(isa: Any, layout: Layout, weight_scale: float, act_scale: float) -> None:
    rng = inputs.generator("scales", layout.name, weight_scale, act_scale)
    w, acts = inputs.weights(layout, 16, 256, rng, weight_scale), inputs.acts(3, 256, 256, rng)
    scale = (acts.scale * act_scale).astype(np.float32)
    judge(isa, layout, w, inputs.acts_from_codes(acts.q, scale))


def test_zero_scales_and_codes(isa: Any, layout: Layout) -> None:
    rng = inputs.generator("zeros", layout.name)
    w, acts = inputs.weights(layout, 16, 256, rng), inputs.acts(2, 256, 256, rng)
    silent = w._replace(d=np.zeros_like(w.d), m=None if w.m is None else np.zeros_like(w.m))
    assert not judge(isa, layout, silent, acts).any()
    nothing = inputs.acts_from_codes(np.zeros((2, 256), np.int8), np.zeros((2, 8), np.float32))
    assert not judge(isa, layout, w, nothing).any()


def test_the_order_of_groups_shows(isa: Any, layout: Layout) -> None:
    """Groups of very different size: another order of summation, or a sum without FMA, gives other bits."""
    rng = inputs.generator("order", layout.name)
    w, acts = inputs.weights(layout, 64, 1024, rng), inputs.acts(8, 1024, 1024, rng)
    scale = acts.scale * np.exp2(rng.integers(-12, 12, acts.scale.shape)).astype(np.float32)
    judge(isa, layout, w, inputs.acts_from_codes(acts.q, scale))


def test_rows_do_not_depend_on_each_other(isa: Any, layout: Layout) -> None:
    rng = inputs.generator("alone", layout.name)
    panels = pack(layout, inputs.weights(layout, 32, 256, rng))
    acts = inputs.acts(17, 256, 256, rng)
    kernel = getattr(isa, layout.kernel)
    together = calls.gemm_quantized(kernel, panels, acts)
    for r in range(17):
        alone = calls.gemm_quantized(kernel, panels, exact.Acts(*(a[r : r + 1] for a in acts)))
        np.testing.assert_array_equal(together[r], alone[0])
