"""The weight types as three programs read them: the reference, the gguf package and pyrt's core."""

import importlib.util
import struct

import numpy as np
import pytest
from reference import quants

from pyrt.tensors import FORMATS

NAMES = list(quants.QUANTS)
N_BLOCKS = 500


def blocks_of(name: str) -> np.ndarray:
    return quants.random_blocks(name, N_BLOCKS, np.random.default_rng(NAMES.index(name)))


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


def test_every_format_has_a_reference_of_the_same_size():
    assert {name: (quant.values, quant.nbytes) for name, quant in quants.QUANTS.items()} == FORMATS


@pytest.mark.parametrize("name", NAMES)
def test_reference_equals_the_gguf_package(name):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[name]
    blocks = blocks_of(name)
    assert gguf.GGML_QUANT_SIZES[kind] == (quants.QUANTS[name].values, quants.QUANTS[name].nbytes)
    assert_same_bits(quants.dequantize(name, blocks), gguf.quants.dequantize(blocks, kind).ravel())


@pytest.mark.parametrize("name", NAMES)
def test_core_equals_the_reference(name):
    # Once the extension is there, a core that cannot be imported or lacks the function is a failure.
    if importlib.util.find_spec("pyrt._core") is None:
        pytest.skip("pyrt._core is not built")
    from pyrt import _core

    blocks = blocks_of(name)
    expected = quants.dequantize(name, blocks)
    assert_same_bits(_core.dequantize(name, blocks.ravel(), expected.size), expected)


@pytest.mark.parametrize("name", NAMES)
def test_random_blocks_are_finite_and_varied(name):
    blocks = blocks_of(name)
    assert np.isfinite(quants.dequantize(name, blocks)).all()
    assert all(len(np.unique(column)) > 100 for column in blocks.T)


def test_blocks_written_by_hand():
    """One value at an end of each field, so that the reference does not hang on another package alone."""
    half = struct.Struct("<e").pack
    q4_1 = half(0.5) + half(-1) + bytes([0x2F] + [0] * 15)
    values = quants.dequantize("Q4_1", np.frombuffer(q4_1, np.uint8))
    assert (values[0], values[16], values[1]) == (6.5, 0.0, -1.0)

    q5_0 = half(2) + (1 << 0 | 1 << 31).to_bytes(4, "little") + bytes([0x03] + [0] * 14 + [0xF0])
    values = quants.dequantize("Q5_0", np.frombuffer(q5_0, np.uint8))
    assert (values[0], values[31], values[1]) == (6.0, 30.0, -32.0)

    scales = bytes([1, 0, 0, 0xC2]) + bytes([3, 0, 0, 0x80]) + bytes([0, 0, 0, 0x5A])
    q4_k = half(0.25) + half(1) + scales + bytes([0x04] + [0] * 126 + [0x70])
    values = quants.dequantize("Q4_K", np.frombuffer(q4_k, np.uint8))
    assert values[0] == 0.25 * 1 * 4 - 3
    assert values[255] == 0.25 * (0x30 + 0xA) * 7 - (0x20 + 5)

    low, high = bytes([0x0F] + [0] * 126 + [0x90]), bytes([0x01] + [0] * 62 + [0x80])
    q6_k = low + high + bytes([2] + [0] * 14 + [255]) + half(1)
    values = quants.dequantize("Q6_K", np.frombuffer(q6_k, np.uint8))
    assert (values[0], values[255]) == (2 * (15 + 16 - 32), -1 * (9 + 32 - 32))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_float_types_return_what_was_stored(name):
    blocks = blocks_of(name)
    np.testing.assert_array_equal(quants.quantize(name, quants.dequantize(name, blocks)), blocks.ravel())


def test_bf16_rounds_to_nearest_even():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32)  # two ties, and one just above a tie
    codes = quants.quantize("BF16", bits.view(np.float32)).view(np.uint16)
    assert codes.tolist() == [0x3F80, 0x3F82, 0x3F81]


@pytest.mark.parametrize(("name", "codes"), [("Q4_0", 8), ("Q8_0", 127)])
def test_quantizer_is_within_half_a_step(name, codes):
    x = np.random.default_rng(7).standard_normal((N_BLOCKS, 32)).astype(np.float32)
    x[0] = 0
    error = np.abs(quants.dequantize(name, quants.quantize(name, x)).reshape(x.shape) - x)
    # Half a step of the float32 scale, plus the largest code times half an ulp of its rounding to f16. Q4_0
    # has no code +8, so values of the other sign near the peak may miss by a whole step.
    step = np.abs(x).max(axis=1, keepdims=True) / codes
    whole = 1.0 if name == "Q4_0" else 0.5
    assert (error <= step * (whole + codes * 2.0**-11) + 1e-30).all()
    assert np.median(error / np.where(step > 0, step, 1)) <= 0.5


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def test_quantizing_twice_changes_nothing(name):
    x = np.random.default_rng(8).standard_normal(32 * N_BLOCKS).astype(np.float32)
    once = quants.dequantize(name, quants.quantize(name, x))
    np.testing.assert_allclose(quants.dequantize(name, quants.quantize(name, once)), once, rtol=2.0**-10)
