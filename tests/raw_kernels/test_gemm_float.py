"""Float weights x float activations; through them the fused multiply-add and the decoding of f16 and bf16."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from reference import kernels as reference

from raw_kernels import calls, exact, inputs

Array = np.ndarray
f32 = np.float32
KINDS = ["f32", "f16", "bf16"]


def stored(w: Array, kind: str) -> tuple[Array, Array]:
    """w as bytes of that type, last axis doubled or quadrupled, and the float32 values that these are."""
    if kind == "f32":
        return w.view(np.uint8), w
    if kind == "f16":
        half = w.astype(np.float16)
        return half.view(np.uint8), half.astype(f32)
    upper = (w.view(np.uint32) >> 16).astype(np.uint16)
    return upper.view(np.uint8), (upper.astype(np.uint32) << 16).view(f32)


def panels(w: Array, kind: str) -> tuple[Array, Array]:
    """Weights [n, k] as panels [n / 16, bytes of [k][16]], and their float32 values [n padded to 16, k]."""
    w = np.pad(w, ((0, -len(w) % 16), (0, 0)))
    by_k = np.ascontiguousarray(w.reshape(-1, 16, w.shape[1]).transpose(0, 2, 1))
    data, values = stored(by_k, kind)
    return data.reshape(len(by_k), -1), values.transpose(0, 2, 1).reshape(w.shape)


def judge(isa: Any, kind: str, w: Array, x: Array, k: int, gap: int = 0) -> Array:
    data, values = panels(w, kind)
    got = calls.gemm_float(getattr(isa, f"gemm_{kind}"), data, x, k, gap)
    np.testing.assert_array_equal(got, exact.gemm_float(values, x[:, :k]))
    assert reference.gemm(values.astype(np.float64), x[:, :k].astype(np.float64)).holds(got)
    return got


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", range(1, 18))
def test_every_count_of_rows(isa: Any, kind: str, rows: int) -> None:
    rng = inputs.generator("float rows", kind, rows)
    judge(isa, kind, inputs.normal(rng, 32, 50), inputs.normal(rng, rows, 53), 50, gap=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (15, 2), (16, 3), (17, 4), (33, 5), (48, 127), (16, 576)])
def test_tails(isa: Any, kind: str, n: int, k: int) -> None:
    rng = inputs.generator("float tails", kind, n, k)
    got = judge(isa, kind, inputs.normal(rng, n, k), inputs.normal(rng, 3, k), k)
    assert not got[:, n:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_four_chains_shows(isa: Any, kind: str) -> None:
    rng = inputs.generator("chains", kind)
    x = inputs.normal(rng, 5, 259) * np.exp2(rng.integers(-12, 12, (5, 259))).astype(f32)
    judge(isa, kind, inputs.normal(rng, 64, 259), x, 259)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2.0**-149, 2.0**-130, 2.0**60])
def test_activations_from_denormal_to_huge(isa: Any, kind: str, size: float) -> None:
    rng = inputs.generator("float sizes", kind, size)
    x = (inputs.normal(rng, 3, 40) * 8).astype(np.float64) * size
    judge(isa, kind, inputs.normal(rng, 16, 40), x.astype(f32), 40)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_all_65536_halves_are_decoded(isa: Any, kind: str) -> None:
    """Weight x 1 + 0: every bit pattern, subnormals and infinities too."""
    patterns = np.arange(65536, dtype=np.uint16).reshape(-1, 1, 16)
    if kind == "f16":
        expected = patterns.view(np.float16).astype(f32)
    else:
        expected = (patterns.astype(np.uint32) << 16).view(f32)
    data = np.ascontiguousarray(patterns).view(np.uint8).reshape(len(patterns), -1)
    got = calls.gemm_float(getattr(isa, f"gemm_{kind}"), data, np.ones((1, 1), f32), 1)
    np.testing.assert_array_equal(got.ravel(), expected.ravel())  # NaN equals NaN; -0 + 0 is 0


def rational_fma(a: f32, b: f32, c: f32) -> f32:
    """By definition: the float32 nearest to the exact rational number, ties to even."""
    truth = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    guess = f32(float(truth))
    near = [np.nextafter(guess, f32(-np.inf)), guess, np.nextafter(guess, f32(np.inf))]
    return min(near, key=lambda x: (abs(Fraction(float(x)) - truth), int(x.view(np.uint32)) & 1))


def fma_triples() -> Array:
    """[n, 3] of a, b, c; many put a * b + c next to a tie, where a sum in double alone rounds wrongly."""
    rng = inputs.generator("fma")
    n = 4096
    a, b = (inputs.normal(rng, n) * np.exp2(rng.integers(-4, 4, n))).astype(f32), inputs.normal(rng, n)
    c = (inputs.normal(rng, n) * np.exp2(rng.integers(-30, 30, n))).astype(f32)
    # c of odd last bit, a * b = 2^-24 (1 - 2^-40), next to half a unit of c: a tie in double goes wrong.
    hard, h = slice(0, n // 2), n // 2
    c[hard] = rng.choice([-1, 1], h) * (1 + (2 * rng.integers(0, 2**22, h) + 1) * 2.0**-23)
    off = rng.choice([-1, 1], h) * 2.0**-20
    a[hard], b[hard] = rng.choice([-1, 1], h) * (1 + off), 2.0**-24 * (1 - off)
    tiny = slice(n - 256, n)  # results among the denormals
    a[tiny], b[tiny], c[tiny] = a[tiny] * 2.0**-70, b[tiny] * 2.0**-70, c[tiny] * 2.0**-126
    return np.stack([a, b, c], axis=1)


def test_the_emulation_of_fma_is_right() -> None:
    triples = fma_triples()
    got = exact.fma(*triples.T)
    np.testing.assert_array_equal(got, [rational_fma(*t) for t in triples])
    in_double = (triples[:, 0].astype(np.float64) * triples[:, 1] + triples[:, 2]).astype(f32)
    assert (got != in_double).sum() > 100, "the triples must be hard"


def test_fma_rounds_once(isa: Any) -> None:
    """k = 5: the first chain holds c = 1 * c, then a * b is added to it."""
    triples = fma_triples()
    w = np.zeros((len(triples), 5), f32)
    got = np.empty(len(triples), f32)
    for start in range(0, len(triples), 16):  # x is shared by the lanes, so b differs from call to call
        part = triples[start : start + 16]
        w = np.zeros((16, 5), f32)
        w[:, 0], w[:, 4] = part[:, 2], part[:, 0]
        x = np.zeros((16, 5), f32)
        x[:, 0], x[:, 4] = 1, part[:, 1]
        data, _ = panels(w, "f32")
        got[start : start + 16] = np.diagonal(calls.gemm_float(isa.gemm_f32, data, x, 5))
    np.testing.assert_array_equal(got, exact.fma(*triples.T))
