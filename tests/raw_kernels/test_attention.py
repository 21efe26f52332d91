"""Attention over key blocks with online softmax: the contract's bits, and near plain softmax in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from reference import kernels as reference
from reference.kernels import BLOCK, Keys

from raw_kernels import calls, exact, inputs

Array = np.ndarray
f32 = np.float32
KINDS = ["f16", "f32", "int8"]


class Cache(NamedTuple):
    """Keys and values of one kv head as stored, their float32 values, and the scales of int8."""

    stored: Keys
    plain: Keys
    scales: tuple[Array, Array] | None

    @property
    def codes(self) -> Keys:
        """What the kernel multiplies, as float32."""
        return Keys(*(x.astype(f32) for x in self.stored))


def cache(kind: str, tokens: int, d: int, rng: np.random.Generator) -> Cache:
    """Room for so many tokens in whole blocks, all filled."""
    tokens = -(-tokens // BLOCK) * BLOCK
    if kind == "int8":
        stored = Keys(*(rng.integers(-127, 128, (tokens, d), np.int8) for _ in range(2)))
        scales = tuple(np.exp2(rng.uniform(-7, -5, tokens)).astype(f32) for _ in range(2))
        plain = Keys(*(x * s[:, None].astype(np.float64) for x, s in zip(stored, scales, strict=True)))
        return Cache(stored, plain, (scales[0], scales[1]))
    dtype = {"f16": np.float16, "f32": f32}[kind]
    stored = Keys(*(inputs.normal(rng, tokens, d).astype(dtype) for _ in range(2)))
    return Cache(stored, Keys(*(x.astype(f32) for x in stored)), None)


def judge(
    isa: Any, kind: str, q: Array, c: Cache, begin: list[int], end: list[int], split: int = 512
) -> Array:
    """All splits in order, each bit for bit, then merged; the whole is near float64."""
    blocks = len(c.stored.k) // BLOCK
    kernel = getattr(isa, f"attn_{kind}")

    def exp(x: Array) -> Array:
        return calls.exp(isa, x)

    whole = None
    for first in range(0, blocks, split // BLOCK):
        part = range(first, min(first + split // BLOCK, blocks))
        got = calls.attention(kernel, q, c.stored, c.scales, begin, end, part)
        expected = exact.attention(q, c.codes, c.scales, begin, end, part, exp)
        for name, a, b in zip(exact.Partial._fields, got, expected, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} of blocks {part}")
        whole = got if whole is None else merged(isa, whole, got, exp)
    assert whole is not None
    divisor = np.where(whole.l > 0, whole.l, f32(1))
    out = whole.o / divisor[:, None]
    assert reference.attention(q, c.plain, begin, end).holds(out)
    return out


def merged(isa: Any, a: exact.Partial, b: exact.Partial, exp: Any) -> exact.Partial:
    """Rows that saw something in both splits are merged; of the others, one part is the whole."""
    both = (a.l > 0) & (b.l > 0)
    first, second = (exact.Partial(*(x[both] for x in part)) for part in (a, b))
    got, expected = calls.merge(isa, first, second), exact.merge(first, second, exp)
    for name, x, y in zip(exact.Partial._fields, got, expected, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=f"merged {name}")
    result = exact.Partial(
        *(np.where((a.l > 0).reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in zip(a, b, strict=True))
    )
    for whole, part in zip(result, got, strict=True):
        whole[both] = part
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", range(1, 18))
def test_causal_rows(isa: Any, kind: str, rows: int) -> None:
    """A chunk of a prompt that ends in the middle of a block: each row sees one key more."""
    rng = inputs.generator("causal", kind, rows)
    tokens = 40 + rows
    c = cache(kind, tokens, 16, rng)
    judge(isa, kind, inputs.normal(rng, rows, 16), c, [0] * rows, list(range(41, tokens + 1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [16, 48, 64, 80, 128, 256])
def test_head_sizes(isa: Any, kind: str, d: int) -> None:
    rng = inputs.generator("heads", kind, d)
    c = cache(kind, 70, d, rng)
    q = inputs.normal(rng, 3, d, scale=d**-0.5)
    judge(isa, kind, q, c, [0] * 3, [70] * 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [1, 5, 31, 32, 33, 64])
def test_windows(isa: Any, kind: str, window: int) -> None:
    """Sliding windows cut blocks on both sides, and leave whole blocks to some rows only."""
    rng = inputs.generator("windows", kind, window)
    c = cache(kind, 130, 32, rng)
    end = [1, 2, 30, 32, 33, 34, 64, 65, 96, 97, 129, 130]
    judge(isa, kind, inputs.normal(rng, len(end), 32), c, [max(0, e - window) for e in end], end)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_share_a_position(isa: Any, kind: str) -> None:
    """Grouped-query heads: several rows of the same range."""
    rng = inputs.generator("grouped", kind)
    c = cache(kind, 100, 32, rng)
    end = [90] * 3 + [91] * 3 + [92] * 3
    judge(isa, kind, inputs.normal(rng, 9, 32), c, [e - 64 for e in end], end)


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_merged(isa: Any, kind: str) -> None:
    rng = inputs.generator("splits", kind)
    c = cache(kind, 300, 32, rng)
    judge(isa, kind, inputs.normal(rng, 4, 32, scale=0.5), c, [0, 0, 40, 150], [20, 140, 256, 300], split=128)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_see_nothing(isa: Any, kind: str) -> None:
    """Before and behind the blocks of a split: m is -inf, l and o are 0, and no neighbour is disturbed."""
    rng = inputs.generator("nothing", kind)
    c = cache(kind, 128, 16, rng)
    q = inputs.normal(rng, 5, 16)
    begin, end = [0, 0, 30, 70, 96], [20, 32, 60, 90, 128]
    got = calls.attention(getattr(isa, f"attn_{kind}"), q, c.stored, c.scales, begin, end, range(1, 3))
    for r in (0, 1, 4):
        assert got.m[r] == -np.inf
        assert got.l[r] == 0
        assert not got.o[r].any()
    for r in (2, 3):
        alone = calls.attention(
            getattr(isa, f"attn_{kind}"),
            q[r : r + 1],
            c.stored,
            c.scales,
            begin[r : r + 1],
            end[r : r + 1],
            range(1, 3),
        )
        assert alone.l[0] == got.l[r]
        np.testing.assert_array_equal(alone.o[0], got.o[r])


@pytest.mark.parametrize("kind", KINDS)
def test_masked_keys_do_not_count(isa: Any, kind: str) -> None:
    """What stands in a page beyond the last token may be anything finite."""
    rng = inputs.generator("masked", kind)
    c = cache(kind, 64, 32, rng)
    q = inputs.normal(rng, 3, 32)
    kernel = getattr(isa, f"attn_{kind}")
    a = calls.attention(kernel, q, c.stored, c.scales, [3, 4, 5], [41, 42, 43], range(2))
    for keys in c.stored:
        keys[43:], keys[:3] = 100, -100
    b = calls.attention(kernel, q, c.stored, c.scales, [3, 4, 5], [41, 42, 43], range(2))
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_equal_scores_average_exactly(isa: Any) -> None:
    """exp(0) is 1: sixty-four keys of one score weigh the same."""
    rng = inputs.generator("equal")
    v = rng.integers(-8, 9, (64, 16)).astype(f32)
    keys = Keys(np.ones((64, 16), f32), v)
    got = calls.attention(isa.attn_f32, np.full((2, 16), 3, f32), keys, None, [0, 0], [64, 64], range(2))
    assert (got.m == 48).all()
    assert (got.l == 64).all()
    np.testing.assert_array_equal(got.o, np.stack([v.sum(axis=0)] * 2))


def test_far_scores_leave_no_denormals(isa: Any) -> None:
    """A key 81 below the largest weighs exactly 0, one just above it does not."""
    k = np.zeros((32, 16), f32)
    k[0, 0], k[1, 0], k[2, 0] = 0, -79.9, -80.1
    k[3:, 0] = -1000
    v = np.eye(32, 16, dtype=f32)
    q = np.zeros((1, 16), f32)
    q[0, 0] = 1
    got = calls.attention(isa.attn_f32, q, Keys(k, v), None, [0], [32], range(1))
    assert got.o[0, 0] == 1
    assert got.o[0, 1] > 2.0**-126
    assert not got.o[0, 2:].any()


def test_largest_scores(isa: Any) -> None:
    """Scores of ten thousands, growing from block to block, so that every block moves the maximum."""
    rng = inputs.generator("large")
    keys = Keys(inputs.normal(rng, 96, 16), inputs.normal(rng, 96, 16))
    keys.k[:, 0] += np.arange(96).astype(f32) * 20
    q = inputs.normal(rng, 2, 16)
    q[:, 0] = [30, -30]
    judge(isa, "f32", q, Cache(keys, keys, None), [0, 0], [96, 96])
