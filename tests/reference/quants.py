"""What the bytes of each GGUF weight type mean, in NumPy.

Written from the block structs of ggml-common.h and https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
Everything is float32 arithmetic in the order shown, so a decoder can be held to it bit for bit. In the
drawings ``f16`` is an IEEE half and ``u4[32]`` are 32 codes of 4 bits; 16 bytes of those hold values 0-15 in
their low nibbles and 16-31 in their high ones.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

Array = np.ndarray

QUANTS: dict[str, type[Quant]] = {}


class Quant:
    """A weight type: ``values`` numbers are stored in ``nbytes`` bytes."""

    values: ClassVar[int]
    nbytes: ClassVar[int]
    halves_at: ClassVar[tuple[int, ...]] = ()
    """Where the f16 scales stand in a block."""

    def __init_subclass__(cls) -> None:
        QUANTS[cls.__name__] = cls

    @staticmethod
    def decode(blocks: Array) -> Array:
        """uint8 [n, nbytes] -> float32 [n, values]."""
        raise NotImplementedError

    @staticmethod
    def encode(x: Array) -> Array:
        """float32 [n, values] -> uint8 [n, nbytes]; simple, not the best quality."""
        raise NotImplementedError


def dequantize(name: str, data: Array) -> Array:
    """Decode whole blocks: uint8 bytes of any shape -> float32 [n]."""
    quant = QUANTS[name]
    return quant.decode(np.ascontiguousarray(data).reshape(-1, quant.nbytes)).ravel()


def quantize(name: str, x: Array) -> Array:
    """Encode whole blocks: floats of any shape -> uint8 [n bytes]. For F32, F16, BF16, Q8_0 and Q4_0."""
    quant = QUANTS[name]
    return quant.encode(np.asarray(x, np.float32).reshape(-1, quant.values)).ravel()


def random_blocks(name: str, n: int, rng: np.random.Generator) -> Array:
    """Blocks of random bits, but finite: uint8 [n, nbytes]. All codes, signs and magnitudes occur."""
    quant = QUANTS[name]
    blocks = rng.integers(0, 256, (n, quant.nbytes), np.uint8)
    for at in quant.halves_at:
        _clear_top_exponent(blocks[:, at + 1], 0x7C, 0x40)
    if name in ("F32", "BF16"):  # the exponent's last bit stands in the byte below
        _clear_top_exponent(blocks[:, -1], 0x7F, 0x40)
    return blocks


def _clear_top_exponent(high_byte: Array, exponent: int, bit: int) -> None:
    """Where all bits of the exponent are set (infinity or NaN), clear one of them, in place."""
    high_byte[(high_byte & exponent) == exponent] &= 0xFF ^ bit


def f16(blocks: Array, at: int) -> Array:
    """The half at byte ``at`` of each block, as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def nibbles(data: Array) -> Array:
    """uint8 [..., k] -> uint8 [..., 2k]: first all low nibbles, then all high ones."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def bits(data: Array) -> Array:
    """uint8 [n, 4] -> uint8 [n, 32]: bit i of the little-endian u32."""
    return np.unpackbits(data, axis=1, bitorder="little")


class F32(Quant):
    values, nbytes = 1, 4

    @staticmethod
    def decode(blocks: Array) -> Array:
        return blocks.view(np.float32)

    @staticmethod
    def encode(x: Array) -> Array:
        return np.ascontiguousarray(x).view(np.uint8)


class F16(Quant):
    values, nbytes = 1, 2
    halves_at = (0,)

    @staticmethod
    def decode(blocks: Array) -> Array:
        return f16(blocks, 0)

    @staticmethod
    def encode(x: Array) -> Array:
        return x.astype(np.float16).view(np.uint8)


class BF16(Quant):
    """The upper half of a float32; encoded by rounding to nearest, ties to even."""

    values, nbytes = 1, 2

    @staticmethod
    def decode(blocks: Array) -> Array:
        return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    @staticmethod
    def encode(x: Array) -> Array:
        u = np.ascontiguousarray(x).view(np.uint32)
        return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)


class Q4_0(Quant):  # noqa: N801
    """d:f16 q:u4[32]    x = d * (q - 8)"""

    values, nbytes = 32, 18
    halves_at = (0,)

    @staticmethod
    def decode(blocks: Array) -> Array:
        return f16(blocks, 0) * (nibbles(blocks[:, 2:]).astype(np.int8) - 8)

    @staticmethod
    def encode(x: Array) -> Array:
        """The value of largest magnitude becomes code 0, that is -8."""
        peak = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)
        d = (peak / -8).astype(np.float16)
        q = (np.rint(_divide(x, d)) + 8).clip(0, 15).astype(np.uint8)
        return np.hstack([d.view(np.uint8), q[:, :16] | q[:, 16:] << 4])


class Q4_1(Quant):  # noqa: N801
    """d:f16 m:f16 q:u4[32]    x = d * q + m"""

    values, nbytes = 32, 20
    halves_at = (0, 2)

    @staticmethod
    def decode(blocks: Array) -> Array:
        return f16(blocks, 0) * nibbles(blocks[:, 4:]) + f16(blocks, 2)


class Q5_0(Quant):  # noqa: N801
    """d:f16 high:u1[32] low:u4[32]    x = d * (low + 16 * high - 16)"""

    values, nbytes = 32, 22
    halves_at = (0,)

    @staticmethod
    def decode(blocks: Array) -> Array:
        q = nibbles(blocks[:, 6:]) | bits(blocks[:, 2:6]) << 4
        return f16(blocks, 0) * (q.astype(np.int8) - 16)


class Q5_1(Quant):  # noqa: N801
    """d:f16 m:f16 high:u1[32] low:u4[32]    x = d * (low + 16 * high) + m"""

    values, nbytes = 32, 24
    halves_at = (0, 2)

    @staticmethod
    def decode(blocks: Array) -> Array:
        q = nibbles(blocks[:, 8:]) | bits(blocks[:, 4:8]) << 4
        return f16(blocks, 0) * q + f16(blocks, 2)


class Q8_0(Quant):  # noqa: N801
    """d:f16 q:i8[32]    x = d * q"""

    values, nbytes = 32, 34
    halves_at = (0,)

    @staticmethod
    def decode(blocks: Array) -> Array:
        return f16(blocks, 0) * blocks[:, 2:].view(np.int8)

    @staticmethod
    def encode(x: Array) -> Array:
        d = (np.abs(x).max(axis=1, keepdims=True) / 127).astype(np.float16)
        q = np.rint(_divide(x, d)).clip(-127, 127).astype(np.int8)
        return np.hstack([d.view(np.uint8), q.view(np.uint8)])


class Q4_K(Quant):  # noqa: N801
    """d:f16 dmin:f16 sub:u6[16] q:u4[256]    group g of 32: x = (d * scale[g]) * q - (dmin * min[g])

    Each 32 bytes of q hold two groups: the low nibbles one, the high nibbles the next.
    """

    values, nbytes = 256, 144
    halves_at = (0, 2)

    @staticmethod
    def decode(blocks: Array) -> Array:
        return _scaled_groups(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


class Q5_K(Quant):  # noqa: N801
    """d:f16 dmin:f16 sub:u6[16] high:u1[8][32] low:u4[256]    as Q4_K with q = low + 16 * high

    Bit g of byte i of ``high`` belongs to value i of group g.
    """

    values, nbytes = 256, 176
    halves_at = (0, 2)

    @staticmethod
    def decode(blocks: Array) -> Array:
        low = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        high = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
        return _scaled_groups(blocks, low | high << 4)


class Q6_K(Quant):  # noqa: N801
    """low:u4[256] high:u2[256] scale:i8[16] d:f16    group g of 16: x = (d * scale[g]) * (q - 32)

    q = low + 16 * high. Each 128 values have 64 bytes of low, the low nibbles first, and 32 bytes of
    high, where value i is bits 2 * (i // 32) and above of byte i % 32.
    """

    values, nbytes = 256, 210
    halves_at = (208,)

    @staticmethod
    def decode(blocks: Array) -> Array:
        low = nibbles(blocks[:, :128].reshape(-1, 2, 64))
        shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
        high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
        q = (low | high.reshape(-1, 2, 128) << 4).astype(np.int8) - 32
        scale = f16(blocks, 208) * blocks[:, 192:208].view(np.int8)
        return (scale[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _scaled_groups(blocks: Array, q: Array) -> Array:
    """The two-level scales of Q4_K and Q5_K applied to codes [n, 8, 32].

    Twelve bytes, a, b, c of four each, hold 8 scales and 8 mins of 6 bits. Groups 0-3: scale = a & 63,
    min = b & 63. Groups 4-7: the low four bits of a scale are the low nibble of c, those of a min the high
    one; the two bits above them are the top bits of a and of b.
    """
    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = np.hstack([a & 63, c & 15 | a >> 6 << 4])
    minimum = np.hstack([b & 63, c >> 4 | b >> 6 << 4])
    d, m = f16(blocks, 0) * scale, f16(blocks, 2) * minimum
    return (d[:, :, None] * q - m[:, :, None]).reshape(-1, 256)


def _divide(x: Array, d: Array) -> Array:
    """x / d, and 0 where the scale is 0."""
    d = d.astype(np.float32)
    return np.divide(x, d, out=np.zeros_like(x), where=d != 0)
