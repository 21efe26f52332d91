"""The frequencies of rotary position embeddings, with the ways in which they are stretched for long contexts.

Source: Su et al., RoFormer (2021), and transformers' modeling_rope_utils.py, whose float32 steps are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pyrt.archs import Rope
from pyrt.header import Header

MAX_THETA = 1e12
MAX_FACTOR = 1e6
MAX_POSITIONS = 2**31 - 1


def from_hf(header: Header, ropes: Mapping[str, Rope], dim: int) -> tuple[np.ndarray, ...]:
    """float32[dim / 2] for each set: inverse frequencies, in radians a token.

    Newer files have ``rope_parameters``, for all layers or by kind of layer; older ones have a key for each
    base and ``rope_scaling``, which is for the first set.
    """
    parameters = header.section("rope_parameters")
    by_kind = any(isinstance(value, Mapping) for value in parameters.values.values())
    sets: list[np.ndarray] = []
    for kind, rope in ropes.items():
        own = parameters.section(kind) if by_kind else parameters
        if not by_kind and sets:
            own = Header(own.where, {})
        theta = own.number("rope_theta", MAX_THETA, header.number(rope.hf_key, MAX_THETA, rope.theta))
        scaling = own if sets or own.get("rope_type") else header.section("rope_scaling")
        own.refuse_others("partial_rotary_factor", 1)
        sets.append(_scaled(inverse_frequencies(theta, dim), scaling))
    return tuple(sets)


def from_gguf(
    header: Header, ropes: Mapping[str, Rope], dim: int, divisors: np.ndarray | None
) -> tuple[np.ndarray, ...]:
    """The same from GGUF keys; ``divisors``: the float32[dim / 2] of the file's tensor rope_freqs, if any.

    Scaling and divisors are for the first set. As in llama.cpp, a factor without a type means linear.
    """
    sets: list[np.ndarray] = []
    for rope in ropes.values():
        freqs = inverse_frequencies(header.number(rope.gguf_key, MAX_THETA, rope.theta), dim)
        if not sets:
            kind = header.text("rope.scaling.type", "linear")
            if kind not in ("none", "linear"):
                raise header.unsupported("rope.scaling.type", f"{kind!a} is not supported, only linear")
            if kind == "linear":
                factor = header.number("rope.scale_linear", MAX_FACTOR, 1.0)
                freqs = freqs / np.float32(header.number("rope.scaling.factor", MAX_FACTOR, factor))
            if divisors is not None:
                freqs = freqs / divisors
        sets.append(freqs)
    return tuple(sets)


def inverse_frequencies(theta: float, dim: int) -> np.ndarray:
    """theta ** (-2i / dim) for i < dim / 2, in float32."""
    from pyrt._core import rope_inv_freq  # the package's own pow: NumPy's differs from CPU to CPU

    return rope_inv_freq(theta, dim)


def _scaled(freqs: np.ndarray, scaling: Header) -> np.ndarray:
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind == "default":
        return freqs
    if kind == "linear":
        return freqs / np.float32(scaling.number("factor", MAX_FACTOR))
    if kind == "llama3":
        return _llama3(freqs, scaling)
    raise scaling.unsupported("rope_type", f"{kind!a} is not supported, only linear and llama3")


def _llama3(freqs: np.ndarray, scaling: Header) -> np.ndarray:
    """Waves longer than the old context are stretched by ``factor``, short ones kept, a ramp between."""
    factor = np.float32(scaling.number("factor", MAX_FACTOR))
    low, high = scaling.number("low_freq_factor", MAX_FACTOR), scaling.number("high_freq_factor", MAX_FACTOR)
    context = scaling.integer("original_max_position_embeddings", 1, MAX_POSITIONS)
    if low >= high:
        raise scaling.error("low_freq_factor", f"{low:g} must be below high_freq_factor, {high:g}")
    wavelength = np.float32(2 * math.pi) / freqs
    ramp = (np.float32(context) / wavelength - np.float32(low)) / np.float32(high - low)
    between = (1 - ramp) * freqs / factor + ramp * freqs
    stretched = np.where(wavelength > np.float32(context / low), freqs / factor, between)
    return np.where(wavelength < np.float32(context / high), freqs, stretched)
