"""Every kernel of ``csrc/kernels/table.h`` as a formula: NumPy, float64, nothing of pyrt.

Inputs are what a kernel reads (codes, scales, float32 values); results are float64.  With each result comes a
bound on what float32 arithmetic may add to it, derived from the data: a sum of n products is off by at most
``(n + a few) * EPS * sum |terms|`` (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.1),
plus what underflow may lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray

EPS = 2.0**-24  # half a unit in the last place of float32
TINY = 2.0**-149  # the least float32
BLOCK = 32  # keys in a block of attention


class Bounded(NamedTuple):
    """A float64 result and how far a float32 result may be from it, elementwise."""

    value: Array
    bound: Array

    def holds(self, got: Array) -> bool:
        """Whether ``got`` is inside the bound everywhere (NaN never is)."""
        return bool(np.all(np.abs(got.astype(np.float64) - self.value) <= self.bound))


class Weights(NamedTuple):
    """A quantized matrix [n, k] with one or two levels of scales.

    One: w = d (code - zero) + m, with d and m [n, k / group].
    Two: w = d sub (code - zero) - m sub_m, with d and m [n, k / 256], sub and sub_m [n, k / group].
    """

    codes: Array
    zero: int
    group: int
    d: Array
    m: Array | None = None
    sub: Array | None = None
    sub_m: Array | None = None


def dequantize(w: Weights) -> Array:
    """The weights [n, k] in float64."""

    def spread(x: Array | None) -> Array:
        wide = np.ones((1, 1)) if x is None else x.astype(np.float64)
        return np.repeat(wide, w.codes.shape[1] // wide.shape[1], axis=1)

    values = spread(w.d) * spread(w.sub) * (w.codes.astype(np.float64) - w.zero)
    if w.m is not None:
        values += spread(w.m) * spread(w.sub_m) * (1.0 if w.sub is None else -1.0)
    return values


def gemm(w: Array, x: Array) -> Bounded:
    """x [rows, k] times w [n, k]: [rows, n].  Any order of summation, any grouping of exact integer sums.

    The bound is that of float weights: k products, of which each takes part in fewer than k + 8 roundings.
    """
    size = np.abs(x) @ np.abs(w).T
    return Bounded(x @ w.T, (w.shape[1] + 8) * EPS * size + 4 * w.shape[1] * 2.0**16 * TINY)


def gemm_quantized(w: Weights, q: Array, scale: Array) -> Bounded:
    """w times the activations that the codes ``q`` [rows, k] and scales [rows, k / 32] stand for."""
    x = q.astype(np.float64) * np.repeat(scale.astype(np.float64), 32, axis=1)
    values = dequantize(w)
    exact = gemm(values, x)
    # d * code and the minimum may cancel in w, but the kernel adds their products apart.
    parts = np.abs(dequantize(w._replace(m=None)))
    if w.m is not None:
        parts = parts + np.abs(dequantize(w._replace(d=np.zeros_like(w.d))))
    groups = q.shape[1] // w.group
    return Bounded(exact.value, (2 * groups + 8) * EPS * (np.abs(x) @ parts.T) + groups * 2.0**20 * TINY)


def quantization_bound(x: Array) -> Array:
    """How far scale * code may be from x [rows, k]: half a step of amax / 127 a group, and four roundings."""
    groups = np.abs(x.astype(np.float64)).reshape(x.shape[0], -1, 32).max(axis=2)
    return np.repeat(
        np.maximum(groups / 254 + 4 * EPS * groups, np.where(groups < 2.0**-120, groups, 0)), 32, axis=1
    )


def rms_norm(x: Array, w: Array, eps: float) -> Bounded:
    x, w = x.astype(np.float64), w.astype(np.float64)
    value = x / np.sqrt(np.mean(x * x) + eps) * w
    return Bounded(value, (len(x) / 16 / 2 + 12) * EPS * np.abs(value) + TINY)


def layer_norm(x: Array, w: Array, b: Array | None, eps: float) -> Bounded:
    x, w = x.astype(np.float64), w.astype(np.float64)
    centred = x - x.mean()
    spread = np.sqrt(np.mean(centred**2) + eps)
    value = centred / spread * w
    steps = len(x) / 16 + 12
    # The mean is off by steps * EPS of the mean magnitude; that error moves every element.
    bound = (
        steps * EPS * (np.abs(value) + np.abs(x).mean() / spread * np.abs(w) * 2)
        + EPS * np.abs(w * x / spread)
        + TINY
    )
    if b is not None:
        value = value + b
        bound = bound + EPS * np.abs(value)
    return Bounded(value, bound)


def rope(x: Array, cos: Array, sin: Array) -> Bounded:
    """x [heads, head_dim] with the pairs (i, i + pairs) turned by the angles of cos and sin [pairs]."""
    pairs = len(cos)
    a, b = x[:, :pairs].astype(np.float64), x[:, pairs : 2 * pairs].astype(np.float64)
    c, s = cos.astype(np.float64), sin.astype(np.float64)
    value, bound = x.astype(np.float64), np.zeros(x.shape)
    value[:, :pairs], value[:, pairs : 2 * pairs] = a * c - b * s, b * c + a * s
    bound[:, :pairs] = 2 * EPS * (np.abs(a * c) + np.abs(b * s)) + 2 * TINY
    bound[:, pairs : 2 * pairs] = 2 * EPS * (np.abs(b * c) + np.abs(a * s)) + 2 * TINY
    return Bounded(value, bound)


EXP_ERROR = 2.2 * EPS  # of our exp, relative, as csrc/kernels/vec/exp.inl.h promises (1.2e-7), and a little


def exp(x: Array) -> Bounded:
    """e^x up to 88, where it stays; 0 below -80."""
    value = np.where(x >= -80, np.exp(np.minimum(x, 88).astype(np.float64)), 0.0)
    return Bounded(value, EXP_ERROR * value)


def logistic(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def silu(x: Array) -> Bounded:
    x = x.astype(np.float64)
    value = x * logistic(x)
    # Below -80 the kernel divides by e^88 at most.
    return Bounded(
        value, 6 * EPS * np.abs(value) + np.where(x < -80, np.abs(value) + np.abs(x) * 2.0**-120, 0) + TINY
    )


def gelu_tanh(x: Array) -> Bounded:
    x = x.astype(np.float64)
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    value = x * logistic(2 * u)
    far = np.where(2 * u < -80, np.abs(value) + np.abs(x) * 2.0**-120, 0)
    # An error in u of 4 EPS |u| moves e^2u by twice that, relatively.
    return Bounded(value, (8 + 10 * np.abs(u)) * EPS * np.abs(value) + far + TINY)


def gelu_erf(x: Array) -> Bounded:
    x = x.astype(np.float64)
    tail = np.vectorize(math.erfc, otypes=[np.float64])(np.abs(x) / math.sqrt(2)) / 2
    value = x * np.where(x >= 0, 1 - tail, tail)
    z2 = x * x / 2
    # An error of 3 EPS z^2 in the exponent; where e^(-z^2) is below e^-80 the kernel takes 0.
    far = np.where(z2 > 79, np.abs(x) * tail, 0)
    return Bounded(
        value, np.abs(x) * np.minimum(tail, 0.5) * (14 + 4 * z2) * EPS + 2 * EPS * np.abs(value) + far + TINY
    )


def gated(act: Callable[[Array], Bounded], g: Array, u: Array | None) -> Bounded:
    """act(g) * u, or act(g)."""
    y = act(g)
    if u is None:
        return y
    up = np.abs(u.astype(np.float64))
    value = y.value * u.astype(np.float64)
    return Bounded(value, y.bound * up + EPS * np.abs(value) + TINY)


def max_sum_exp(x: Array, scale: float) -> tuple[float, Bounded]:
    """The largest of scale * x, rounded once, and the sum of exp(scale * x - that)."""
    scaled = (x * np.float32(scale)).astype(np.float32).astype(np.float64)
    top = scaled.max()
    shifted = scaled - top
    terms = np.where(shifted >= -80, np.exp(shifted), 0.0)
    rounding = (np.abs(shifted) + len(x) / 16 + 8) * EPS
    return float(top), Bounded(
        np.array(terms.sum()), np.array((terms * rounding).sum()) + len(x) * np.exp(-80)
    )


class Keys(NamedTuple):
    """Decoded keys and values [tokens, d] of one kv head, token 0 at position 0."""

    k: Array
    v: Array


def attention(q: Array, keys: Keys, begin: Sequence[int], end: Sequence[int]) -> Bounded:
    """Softmax attention of scaled queries [rows, d], row r over keys begin[r] to end[r]; 0 if none."""
    value, bound = np.zeros(q.shape), np.zeros(q.shape)
    d = q.shape[1]
    for r, (low, high) in enumerate(zip(begin, end, strict=True)):
        if high <= low:
            continue
        k, v = keys.k[low:high].astype(np.float64), keys.v[low:high].astype(np.float64)
        s = k @ q[r].astype(np.float64)
        p = np.exp(s - s.max())
        p /= p.sum()
        value[r] = p @ v
        # A score is off by (d + 4) EPS sum |q k|; so is, relatively, its weight; so is the whole sum at most.
        off = (
            (d + 4) * (np.abs(k) @ np.abs(q[r].astype(np.float64))) + 2 * np.abs(s) + (high - low) + 64
        ) * EPS
        bound[r] = (p * (off + (p @ off))) @ np.abs(v) * 1.01 + 2e-33 * np.abs(v).sum(axis=0)
    return Bounded(value, bound)
