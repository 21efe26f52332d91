"""Made-up weights and activations: ordinary ones, and those at the ends of what a kernel must bear."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from reference.kernels import Weights

from raw_kernels.exact import Acts, quantize
from raw_kernels.packing import Layout

Array = np.ndarray
f32 = np.float32


def generator(*what: Any) -> np.random.Generator:
    """Random numbers that depend only on what they are for."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(f32)


def float16(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Of either sign, magnitudes over six octaves."""
    return (rng.choice([-1, 1], shape) * np.exp2(rng.uniform(-6, 0, shape)) * scale).astype(np.float16)


def weights(layout: Layout, n: int, k: int, rng: np.random.Generator, scale: float = 1.0) -> Weights:
    """Every field random over its whole range."""
    scales, groups = k // (256 if layout.two_level else layout.group), k // layout.group
    w = Weights(
        rng.integers(0, layout.largest_code + 1, (n, k), np.uint8),
        layout.zero,
        layout.group,
        float16(rng, n, scales, scale=scale),
    )
    if layout.minima:
        w = w._replace(m=float16(rng, n, scales, scale=scale))
    if layout.two_level:
        w = w._replace(sub=rng.integers(-128, 128, (n, groups), np.int8))
        if layout.minima:
            w = w._replace(sub_m=rng.integers(0, 256, (n, groups), np.uint8))
    return w


def constant_weights(layout: Layout, n: int, k: int, code: int) -> Weights:
    """All codes alike, scales 1."""
    w = weights(layout, n, k, generator("constant"))
    ones = np.ones_like(w.d)
    sub, sub_m = (None if x is None else np.ones_like(x) for x in (w.sub, w.sub_m))
    m = ones if layout.minima else None
    return w._replace(codes=np.full((n, k), code, np.uint8), d=ones, m=m, sub=sub, sub_m=sub_m)


def acts_from_codes(q: Array, scale: Array) -> Acts:
    """Activations with given codes [rows, k] and scales [rows, k / 32]."""
    sum16 = q.reshape(len(q), -1, 16).sum(axis=2, dtype=np.int32)
    sum32 = sum16.reshape(len(q), -1, 2).sum(axis=2, dtype=np.int32)
    return Acts(q, scale, scale * sum32.astype(f32), sum32, sum16)


def acts(rows: int, n: int, k: int, rng: np.random.Generator) -> Acts:
    """Codes of random activations of n values, padded to k."""
    return quantize(normal(rng, rows, n), k)
