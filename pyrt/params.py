"""How large a model is: parameters by component, bytes at each precision, bytes of KV cache.

Plain arithmetic on a ``ModelConfig``; no weights are needed, so that a bare config.json is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyrt.config import ModelConfig, Shape
from pyrt.kv import PAGE, most_held

_COMPONENTS = {
    "embed": "embedding", "pos_embed": "positions", "q": "attention", "k": "attention", "v": "attention",
    "o": "attention", "gate": "feed-forward", "up": "feed-forward", "down": "feed-forward", "head": "head",
}  # fmt: skip


class _Packed(NamedTuple):
    """A packed layout: records of ``weights`` along a row, and the bytes of a row's part of one."""

    weights: int
    nbytes: int


# csrc/packed/layout.h: codes with f16 scales and minima for each 32, or two levels of them for 256; panels of
# 16 rows. By stored type, as csrc/formats/formats.def assigns them.
_PANEL = 16
_PACKED = {
    "F32": _Packed(1, 4), "F16": _Packed(1, 2), "BF16": _Packed(1, 2), "Q4_0": _Packed(64, 36),
    "Q4_1": _Packed(64, 40), "Q5_0": _Packed(64, 44), "Q5_1": _Packed(64, 48), "Q8_0": _Packed(64, 68),
    "Q4_K": _Packed(256, 148), "Q5_K": _Packed(256, 180), "Q6_K": _Packed(256, 212),
}  # fmt: skip

# csrc/nn/kv_cache.h: bytes of a number, and of the scale of a token's key or value in one head.
_KV = {"f32": (4, 0), "f16": (2, 0), "int8": (1, 4)}


@dataclass(frozen=True)
class Parameters:
    """Counts of parameters. ``components``: by name, in the order of use; they add up to ``total``.

    ``layer``: the same for one layer. ``total`` counts a tied head once, with the embedding.
    """

    components: Mapping[str, int]
    layer: Mapping[str, int]
    total: int

    def share(self, component: str) -> float:
        """0 to 1."""
        return self.components[component] / self.total

    def nbytes(self, bits: int) -> float:
        """Bytes of all weights at ``bits`` each, without the scales that quantized weights need besides."""
        return self.total * bits / 8

    @property
    def feed_forward_to_attention(self) -> float:
        return self.layer["feed-forward"] / self.layer["attention"]

    @property
    def embedding_in_blocks(self) -> float:
        """How many whole layers one embedding table weighs."""
        return self.components["embedding"] / sum(self.layer.values())


def count(config: ModelConfig) -> Parameters:
    """Count a model's parameters; biases count where the weights do that they belong to."""
    names = ("embedding", "positions", "attention", "feed-forward", "norms", "head")
    components, layer = dict.fromkeys(names, 0), dict.fromkeys(("attention", "feed-forward", "norms"), 0)
    for shape in config.shapes():
        name, n = _COMPONENTS.get(shape.kind, "norms"), shape.rows * shape.cols
        components[name] += n
        if shape.layer == 0:
            layer[name] += n
    components = {name: n for name, n in components.items() if n}
    return Parameters(components, layer, sum(components.values()))


def packed_nbytes(config: ModelConfig, formats: Mapping[str, str] | str) -> int:
    """Bytes of the weights as the core keeps them: panels of whole rows, and vectors in float32.

    ``formats``: the stored type of each matrix by its core name, or one for all ("F16", "Q8_0", "Q4_0", ...).
    """

    def nbytes(shape: Shape) -> int:
        if shape.vector:
            return 4 * shape.cols
        weights, size = _PACKED[formats if isinstance(formats, str) else formats[shape.name]]
        return _up(shape.rows, _PANEL) * _up(shape.cols, weights) // weights * size

    return sum(nbytes(shape) for shape in config.shapes()) + sum(freqs.nbytes for freqs in config.rope_freqs)


def kv_token_nbytes(config: ModelConfig, kv_dtype: str = "f16") -> int:
    """Bytes that one token adds to the cache while every layer still sees it."""
    number, scale = _KV[kv_dtype]
    k = config.knobs
    return int(2 * k["n_layers"] * k["n_kv_heads"] * (_up(k["head_dim"], _PANEL) * number + scale))


def kv_nbytes(config: ModelConfig, n_tokens: int, kv_dtype: str = "f16") -> int:
    """Most bytes that a sequence of ``n_tokens`` holds: whole pages; of windows, what is still seen."""
    layer_page = kv_token_nbytes(config, kv_dtype) // config.knobs["n_layers"] * PAGE
    n_pages = _up(n_tokens, PAGE) // PAGE
    return sum(layer_page * most_held(window, n_pages) for window in config.knobs["layer_window"])


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
