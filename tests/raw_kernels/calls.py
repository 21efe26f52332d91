"""Calls of raw kernels: arrays in and out, all in guarded memory, whose guards are looked at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from reference.kernels import BLOCK, Keys

from raw_kernels.ctable import ffi
from raw_kernels.exact import Acts, Partial
from raw_kernels.memory import blank, front_intact, guarded, pointer

Array = np.ndarray
AHEAD = 4096  # kernels must not read what they fetch ahead: weights end at a page that cannot be read


def checked(out: Array) -> Array:
    assert front_intact(out), "the kernel wrote in front of its result"
    return np.array(out)


def by_group(acts: Acts) -> Acts:
    """The arrays in the order of pyrt_acts: [groups, rows], and of codes [groups, rows, 32]."""
    q = acts.q.reshape(len(acts.q), -1, 32).transpose(1, 0, 2)
    return Acts(*map(np.ascontiguousarray, (q, *(a.T for a in acts[1:]))))


def by_row(acts: Acts) -> Acts:
    """by_group undone."""
    q = acts.q.transpose(1, 0, 2).reshape(acts.q.shape[1], -1)
    return Acts(*map(np.ascontiguousarray, (q, *(a.T for a in acts[1:]))))


def c_acts(acts: Acts) -> tuple[Any, list[Array]]:
    """pyrt_acts over guarded copies, and the copies, which must outlive it."""
    rows, k = acts.q.shape
    arrays = [guarded(a) for a in by_group(acts)]
    return ffi.new("pyrt_acts*", [k, rows, *map(pointer, arrays)]), arrays


def gemm_quantized(kernel: Any, panels: Array, acts: Acts, gap: int = 0) -> Array:
    """[rows, 16 * panels]; with ``gap``, rows of the result stand that much further apart."""
    rows, width = acts.q.shape[0], 16 * len(panels)
    weights, out = guarded(panels), blank((rows, width + gap))
    struct, _keep = c_acts(acts)
    kernel(pointer(weights), panels.shape[1], len(panels), AHEAD, struct, rows, pointer(out), width + gap)
    assert np.isnan(out[:, width:]).all(), "the kernel wrote beyond its panels"
    return checked(out)[:, :width]


def gemm_float(kernel: Any, panels: Array, x: Array, k: int, gap: int = 0) -> Array:
    """x [rows, ldx], of which the first k count."""
    width = 16 * len(panels)
    weights, inputs, out = guarded(panels), guarded(x), blank((len(x), width + gap))
    kernel(
        pointer(weights),
        panels.shape[1],
        len(panels),
        AHEAD,
        pointer(inputs),
        k,
        x.shape[1],
        len(x),
        pointer(out),
        width + gap,
    )
    assert np.isnan(out[:, width:]).all(), "the kernel wrote beyond its panels"
    return checked(out)[:, :width]


def quantize(table: Any, x: Array, n: int, k: int) -> tuple[int, Acts]:
    """The flag, and the codes of the first n values of each row of x, padded to k."""
    rows = len(x)
    acts = Acts(
        blank((k // 32, rows, 32), np.int8), blank((k // 32, rows)), blank((k // 32, rows)),
        blank((k // 32, rows), np.int32), blank((k // 16, rows), np.int32),
    )  # fmt: skip
    inputs = guarded(x)
    struct = ffi.new("pyrt_acts*", [k, rows, *map(pointer, acts)])
    flag = table.quantize(pointer(inputs), n, x.shape[1], rows, struct)
    return flag, by_row(Acts(*map(checked, acts)))


def norm(
    kernel: Any, x: Array, *weights: Array | None, eps: float, in_place: bool = False
) -> tuple[int, Array]:
    """The flag and the result of rms_norm (w) or layer_norm (w, b)."""
    inputs, copies = guarded(x), [None if w is None else guarded(w) for w in weights]
    out = inputs if in_place else blank(x.shape)
    flag = kernel(pointer(inputs), *map(pointer, copies), eps, len(x), pointer(out))
    return flag, checked(out)


def rope(table: Any, x: Array, cos: Array, sin: Array) -> Array:
    """x [heads, head_dim]."""
    inout, c, s = guarded(x), guarded(cos), guarded(sin)
    table.rope(pointer(inout), x.shape[0], x.shape[1], len(cos), pointer(c), pointer(s))
    return checked(inout)


def add(table: Any, x: Array, y: Array) -> Array:
    inout, other = guarded(x), guarded(y)
    table.add(pointer(inout), pointer(other), len(x))
    return checked(inout)


def scale(table: Any, x: Array, by: float, in_place: bool = False) -> Array:
    inputs = guarded(x)
    out = inputs if in_place else blank(x.shape)
    table.scale(pointer(inputs), by, len(x), pointer(out))
    return checked(out)


def gated(kernel: Any, g: Array, u: Array | None, onto: str = "") -> Array:
    """act(g) * u into memory of its own, or onto "g" or "u"."""
    copies = {"g": guarded(g), "u": None if u is None else guarded(u)}
    out = copies[onto] if onto else blank(g.shape)
    kernel(pointer(copies["g"]), pointer(copies["u"]), len(g), pointer(out))
    assert out is not None
    return checked(out)


def exp(table: Any, x: Array) -> Array:
    inputs, out = guarded(np.ascontiguousarray(x, np.float32)), blank(x.shape)
    table.exp(pointer(inputs), x.size, pointer(out))
    return checked(out)


def max_sum_exp(table: Any, x: Array, scale: float) -> tuple[Array, Array]:
    inputs, top, total = guarded(x), blank(1), blank(1)
    table.max_sum_exp(pointer(inputs), len(x), scale, pointer(top), pointer(total))
    return checked(top)[0], checked(total)[0]


def to_f16(table: Any, x: Array) -> tuple[int, Array]:
    """How many did not fit, and the float16 values."""
    inputs, out = guarded(x), blank(x.shape, np.uint16)
    count = table.to_f16(pointer(inputs), len(x), pointer(out))
    return count, checked(out).view(np.float16)


def block_bytes(keys: Keys, scales: tuple[Array, Array] | None, b: int) -> Array:
    """A block of the cache as bytes: K [d][32], V [32][d], the scales of K and of V; zeros beyond the end."""

    def cut(x: Array) -> Array:
        part = x[b * BLOCK : (b + 1) * BLOCK]
        return np.pad(part, [(0, BLOCK - len(part))] + [(0, 0)] * (x.ndim - 1))

    parts = [np.ascontiguousarray(cut(keys.k).T), cut(keys.v), *(cut(s) for s in scales or ())]
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).ravel() for p in parts])


def attention(
    kernel: Any,
    q: Array,
    keys: Keys,
    scales: tuple[Array, Array] | None,
    begin: Sequence[int],
    end: Sequence[int],
    blocks: range,
) -> Partial:
    """One split over the given key blocks."""
    rows, d = q.shape
    pages = [guarded(block_bytes(keys, scales, b)) for b in blocks]
    pointers = ffi.new("void*[]", [pointer(page) for page in pages])
    queries, low, high = guarded(q), guarded(np.asarray(begin, np.int64)), guarded(np.asarray(end, np.int64))
    out = Partial(blank(rows), blank(rows), blank((rows, d)))
    kernel(
        ffi.new(
            "pyrt_attn*",
            [
                rows,
                d,
                *map(pointer, (queries, low, high)),
                blocks.start,
                blocks.stop,
                pointers,
                *map(pointer, out),
            ],
        )
    )
    return Partial(*map(checked, out))


def merge(table: Any, a: Partial, b: Partial) -> Partial:
    """Row by row."""
    m, l, o, later = guarded(a.m), guarded(a.l), guarded(a.o), guarded(b.o)  # noqa: E741
    for r in range(len(m)):
        row = slice(r, r + 1)
        table.attn_merge(
            pointer(m[row]), pointer(l[row]), pointer(o[r]), b.m[r], b.l[r], pointer(later[r]), o.shape[1]
        )
    return Partial(checked(m), checked(l), checked(o))
