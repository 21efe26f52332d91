"""What the contract on numbers says about order and rounding, in NumPy float32; kernels must equal it.

Nothing here fuses or reorders: each line rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from reference.kernels import BLOCK, Keys, Weights

Array = np.ndarray
f32 = np.float32
STEP = 128  # keys that attention takes between two looks at the maximum


def fma(a: Array | float, b: Array | float, c: Array | float) -> Array:
    """a * b + c with one rounding, float32.

    The product is exact in float64 and the sum is known as s + error.  Rounding s to float32 is right unless
    s lies halfway between two floats, where the sign of the error decides.
    """
    p = np.asarray(a, f32).astype(np.float64) * np.asarray(b, f32).astype(np.float64)
    c = np.asarray(c, f32).astype(np.float64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    near = s.astype(f32)
    gap = s - near
    other = np.nextafter(near, np.where(gap > 0, f32(np.inf), f32(-np.inf)))
    tie = (gap != 0) & (near.astype(np.float64) + other.astype(np.float64) == 2 * s)
    return np.where(tie & (error * np.sign(gap) > 0), other, near)


def tree(lanes: Array) -> Array:
    """The sum of 16 lanes (last axis): i + 8, then i + 4, i + 2, i + 1."""
    for width in (8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width:]
    return lanes[..., 0]


def in_lanes(x: Array) -> Array:
    """A vector as [steps, 16], padded with zeros."""
    return np.pad(x, (0, -len(x) % 16)).reshape(-1, 16)


class Acts(NamedTuple):
    """Quantized activations as in pyrt_acts: [rows, k], [rows, k / 32] (three) and [rows, k / 16]."""

    q: Array
    scale: Array
    sum: Array
    sum32: Array
    sum16: Array


def quantize(x: Array, k: int) -> Acts:
    """Codes of x [rows, n], padded to k."""
    rows, n = x.shape
    groups = np.pad(x, ((0, 0), (0, k - n))).reshape(rows, k // 32, 32)
    amax = np.abs(groups).max(axis=2)
    tiny = amax < f32(2.0**-120)
    safe = np.where(tiny, f32(1), amax)
    inverse = np.where(tiny, f32(0), f32(127) / safe)
    q = np.rint(groups * inverse[:, :, None]).astype(np.int8)
    sum16 = q.reshape(rows, k // 16, 16).sum(axis=2, dtype=np.int32)
    sum32 = sum16.reshape(rows, -1, 2).sum(axis=2, dtype=np.int32)
    scale = np.where(tiny, f32(0), amax / f32(127))
    return Acts(q.reshape(rows, k), scale, scale * sum32.astype(f32), sum32, sum16)


def gemm_quantized(w: Weights, a: Acts) -> Array:
    """[rows, n], groups ascending; two-level scales once per 256."""
    rows, n = a.q.shape[0], w.codes.shape[0]
    out = np.zeros((rows, n), f32)
    acc, low = out.copy(), out.copy()
    d = w.d.astype(f32)
    m = None if w.m is None else w.m.astype(f32)
    per_scale = w.codes.shape[1] // w.d.shape[1]
    for g in range(w.codes.shape[1] // w.group):
        part = slice(g * w.group, (g + 1) * w.group)
        isum = a.q[:, part].astype(np.int64) @ (w.codes[:, part].astype(np.int64) - w.zero).T
        assert np.abs(isum).max(initial=0) < 2**24
        sa = a.scale[:, g * w.group // 32, None]
        s = a.sum[:, g * w.group // 32, None]
        if w.sub is None:
            out = fma(isum, d[None, :, g] * sa, out)
            if m is not None:
                out = fma(m[None, :, g], s, out)
            continue
        acc = fma(isum, w.sub[None, :, g].astype(f32) * sa, acc)
        if w.sub_m is not None:
            low = fma(w.sub_m[None, :, g], s, low)
        if (g + 1) * w.group % per_scale == 0:
            block = g * w.group // per_scale
            out = fma(d[None, :, block], acc, out)
            if m is not None and w.sub_m is not None:
                out = fma(-m[None, :, block], low, out)
            acc, low = np.zeros_like(acc), np.zeros_like(low)
    return out


def gemm_float(w: Array, x: Array) -> Array:
    """w [n, k] and x [rows, k] as float32: four chains over k mod 4, summed (0 + 2) + (1 + 3)."""
    chains = np.zeros((4, x.shape[0], w.shape[0]), f32)
    for i in range(w.shape[1]):
        chains[i % 4] = fma(w[None, :, i], x[:, i, None], chains[i % 4])
    return (chains[0] + chains[2]) + (chains[1] + chains[3])


def rms_norm(x: Array, w: Array, eps: float) -> Array:
    squares = np.zeros(16, f32)
    for lanes in in_lanes(x):
        squares = fma(lanes, lanes, squares)
    scale = f32(1) / np.sqrt(tree(squares) / f32(len(x)) + f32(eps))
    return x * scale * w


def layer_norm(x: Array, w: Array, b: Array | None, eps: float) -> Array:
    total = np.zeros(16, f32)
    for lanes in in_lanes(x):
        total = total + lanes
    centred = x - tree(total) / f32(len(x))
    squares = np.zeros(16, f32)
    for lanes in in_lanes(centred):
        squares = fma(lanes, lanes, squares)
    v = centred * (f32(1) / np.sqrt(tree(squares) / f32(len(x)) + f32(eps)))
    return v * w if b is None else fma(v, w, b)


def rope(x: Array, cos: Array, sin: Array) -> Array:
    pairs, out = len(cos), x.copy()
    a, b = x[:, :pairs], x[:, pairs : 2 * pairs]
    out[:, :pairs] = fma(a, cos, -(b * sin))
    out[:, pairs : 2 * pairs] = fma(b, cos, a * sin)
    return out


Exp = Callable[[Array], Array]


def max_sum_exp(x: Array, scale: float, exp: Exp) -> tuple[Array, Array]:
    scaled = x * f32(scale)
    top = scaled.max()
    if top == -np.inf:
        return top, f32(0)
    total = np.zeros(16, f32)
    shifted = np.pad(scaled - top, (0, -len(x) % 16), constant_values=-np.inf)
    for lanes in exp(shifted).reshape(-1, 16):
        total = total + lanes
    return top, tree(total)


class Partial(NamedTuple):
    """The result of one split: m, l [rows] and o [rows, d], not divided by l."""

    m: Array
    l: Array  # noqa: E741
    o: Array


def attention(
    q: Array,
    keys: Keys,
    scales: tuple[Array, Array] | None,
    begin: Sequence[int],
    end: Sequence[int],
    blocks: range,
    exp: Exp,
) -> Partial:
    """One split: steps of 128 keys with online softmax, tokens ascending.

    ``keys`` are float32, or the codes of int8 with their ``scales`` [tokens] of K and of V.
    """
    rows, d = q.shape
    m, l, o = np.full(rows, -np.inf, f32), np.zeros(rows, f32), np.zeros((rows, d), f32)  # noqa: E741
    low, high = np.asarray(begin), np.asarray(end)
    first, last = blocks.start * BLOCK, blocks.stop * BLOCK
    for step in range(first // STEP * STEP, last, STEP):
        tokens = slice(max(step, first), min(step + STEP, last))
        seeing = np.flatnonzero((high > tokens.start) & (low < tokens.stop))
        if len(seeing) == 0:
            continue
        position = np.arange(tokens.start, tokens.stop)
        s = np.zeros((len(seeing), len(position)), f32)
        for i in range(d):
            s = fma(q[seeing, i, None], keys.k[None, tokens, i], s)
        if scales:
            s = s * scales[0][tokens]
        s = np.where((position >= low[seeing, None]) & (position < high[seeing, None]), s, f32(-np.inf))
        top = np.maximum(m[seeing], s.max(axis=1))
        p = exp(s - top[:, None])
        alpha = exp(m[seeing] - top)
        total = np.zeros((len(seeing), 16), f32)
        for vector in range(0, len(position), 16):
            total = total + p[:, vector : vector + 16]
        l[seeing] = l[seeing] * alpha + tree(total)
        m[seeing] = top
        if scales:
            p = p * scales[1][tokens]
        sums = o[seeing] * alpha[:, None]
        for t in range(len(position)):
            sums = fma(p[:, t, None], keys.v[None, tokens.start + t], sums)
        o[seeing] = sums
    return Partial(m, l, o)


def merge(a: Partial, b: Partial, exp: Exp) -> Partial:
    """Two splits of one row, the later one second."""
    top = np.maximum(a.m, b.m)
    wa, wb = exp(a.m - top), exp(b.m - top)
    return Partial(top, a.l * wa + b.l * wb, fma(a.o, wa[:, None], b.o * wb[:, None]))
