"""The table as a whole: nothing in it goes untested, and every ISA gives the bits of the scalar one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference.kernels import Keys

from raw_kernels import calls, inputs
from raw_kernels.ctable import CSRC, ISAS, ffi, kernel_names, rows, table
from raw_kernels.exact import Partial
from raw_kernels.packing import LAYOUTS, Layout, pack

Array = np.ndarray
f32 = np.float32

TILES = [name for name in kernel_names() if "tiles" in name]


def quantized(layout: Layout) -> Callable[[Any], Any]:
    def run(isa: Any) -> Any:
        rng = inputs.generator("table", layout.name)
        panels = pack(layout, inputs.weights(layout, 80, 768, rng))
        return calls.gemm_quantized(getattr(isa, layout.kernel), panels, inputs.acts(13, 700, 768, rng))

    return run


def floating(name: str, size: int) -> Callable[[Any], Any]:
    def run(isa: Any) -> Any:
        rng = inputs.generator("table", name)
        values = inputs.float16(rng, 3, 16 * 77)  # as bf16 these are other, but ordinary numbers
        panels = (values.astype(f32) if size == 4 else values).view(np.uint8)
        return calls.gemm_float(getattr(isa, name), panels, inputs.normal(rng, 13, 80), 77)

    return run


def attended(name: str, dtype: type) -> Callable[[Any], Any]:
    def run(isa: Any) -> Any:
        rng = inputs.generator("table", name)
        whole = dtype == np.int8
        keys = Keys(
            *(
                (rng.integers(-99, 99, (96, 80)) if whole else rng.normal(size=(96, 80))).astype(dtype)
                for _ in range(2)
            )
        )
        scales = (np.exp2(rng.uniform(-9, -6, 96)).astype(f32), np.ones(96, f32)) if whole else None
        q = inputs.normal(rng, 7, 80, scale=0.2)
        return calls.attention(
            getattr(isa, name),
            q,
            keys,
            scales,
            [0, 0, 9, 9, 40, 41, 50],
            [1, 40, 50, 60, 80, 90, 95],
            range(3),
        )

    return run


def vector(call: Callable[[Any, Array, Array], Any], n: int = 1003, scale: float = 9) -> Callable[[Any], Any]:
    """A kernel on two random vectors."""

    def run(isa: Any) -> Any:
        rng = inputs.generator("table")
        return call(isa, inputs.normal(rng, n, scale=scale), inputs.normal(rng, n))

    return run


def merged(isa: Any) -> Any:
    rng = inputs.generator("merge")
    a, b = (
        Partial(inputs.normal(rng, 5, scale=4), np.abs(inputs.normal(rng, 5)), inputs.normal(rng, 5, 48))
        for _ in range(2)
    )
    return calls.merge(isa, a, b)


CASES: dict[str, Callable[[Any], Any]] = {
    **{layout.kernel: quantized(layout) for layout in LAYOUTS},
    **{
        f"gemm_{kind}": floating(f"gemm_{kind}", size) for kind, size in (("f32", 4), ("f16", 2), ("bf16", 2))
    },
    "quantize": vector(lambda t, x, _: calls.quantize(t, x.reshape(17, 59), 59, 64)),
    "rms_norm": vector(lambda t, x, w: calls.norm(t.rms_norm, x, w, eps=1e-6)),
    "layer_norm": vector(lambda t, x, w: calls.norm(t.layer_norm, x, w, w, eps=1e-6)),
    "rope": vector(lambda t, x, w: calls.rope(t, x.reshape(17, 59), w[:29].copy(), w[29:58].copy())),
    "add": vector(lambda t, x, w: calls.add(t, x, w)),
    "scale": vector(lambda t, x, _: calls.scale(t, x, 0.37)),
    "silu": vector(lambda t, x, w: calls.gated(t.silu, x, w), scale=40),
    "gelu_tanh": vector(lambda t, x, w: calls.gated(t.gelu_tanh, x, w), scale=5),
    "gelu_erf": vector(lambda t, x, w: calls.gated(t.gelu_erf, x, w), scale=5),
    "exp": vector(lambda t, x, _: calls.exp(t, x), scale=60),
    "max_sum_exp": vector(lambda t, x, _: calls.max_sum_exp(t, x, 0.7)),
    "to_f16": vector(lambda t, x, _: calls.to_f16(t, x * f32(4e3))),
    "attn_f16": attended("attn_f16", np.float16),
    "attn_f32": attended("attn_f32", np.float32),
    "attn_int8": attended("attn_int8", np.int8),
    "attn_merge": merged,
}


def arrays(result: Any) -> list[Array]:
    """The arrays and numbers of a nested result."""
    return [a for part in result for a in arrays(part)] if isinstance(result, tuple) else [np.asarray(result)]


@pytest.mark.parametrize("kernel", CASES)
def test_same_bits_as_scalar(isa: Any, kernel: str) -> None:
    for got, expected in zip(arrays(CASES[kernel](isa)), arrays(CASES[kernel](table("scalar"))), strict=True):
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()


def test_no_kernel_without_a_case() -> None:
    assert sorted(CASES) == sorted(set(kernel_names()) - set(TILES))


def test_no_layout_without_a_kernel() -> None:
    assert {layout.kernel for layout in LAYOUTS} < set(kernel_names())


def test_the_kernels_without_bits_to_agree_on() -> None:
    """Those of "fast" prompts: a program compares them with sums in double, on machines that have tiles."""
    assert {f"tiles_{layout.name.lower()}" for layout in LAYOUTS} < set(TILES)
    program = (CSRC.parent / "tests/cpp/test_tiles.cc").read_text()
    assert {name for name in TILES if not re.search(rf"\b{name}\b", program)} == set()


def test_a_table_names_its_isa(isa: Any, request: pytest.FixtureRequest) -> None:
    assert ffi.string(isa.isa).decode() == request.node.callspec.params["isa"]


def test_unknown_isas_have_no_table() -> None:
    names = {row[0] for row in rows("kernels/isas.def", "ISA")}
    for name in [*(names - set(ISAS)), "", "AVX2", "avx", "nonsense"]:
        assert table(name) is None
    assert table("scalar") is not None
