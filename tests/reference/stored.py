"""Weights in a stored type: bytes for the core, and the numbers that they mean for the reference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reference import quants
from reference.tiny import Model


class Stored(NamedTuple):
    """A tensor [rows, cols] in the type ``form``; ``data`` are its bytes, ``means`` its values in float32."""

    form: str
    data: np.ndarray
    means: np.ndarray


def store(model: Model, form: str, seed: int = 0) -> dict[str, Stored]:
    """Every matrix of a model in one type, the rest in float32. Quantized ones keep only their size: their
    codes and scales are random, so that all codes occur and no encoder is needed."""
    rng = np.random.default_rng(seed)
    return {
        name: _stored(form if tensor.ndim == 2 and name != "pos_embed" else "F32", tensor, rng)
        for name, tensor in model[1].items()
    }


def _stored(form: str, tensor: np.ndarray, rng: np.random.Generator) -> Stored:
    quant = quants.QUANTS[form]
    if quant.values == 1:
        data = quants.quantize(form, tensor)
    else:
        data = _random_blocks(form, tensor.size // quant.values, tensor.std(), rng)
    return Stored(form, data, quants.dequantize(form, data).reshape(tensor.shape))


def _random_blocks(form: str, n: int, std: float, rng: np.random.Generator) -> np.ndarray:
    """Blocks of random codes and inner scales, around 0 and of about this standard deviation."""
    blocks = quants.random_blocks(form, n, rng)
    # the second half-precision number moves the codes' mean to 0; minima of the K types are subtracted
    middle = {"Q4_1": -7.5, "Q5_1": -15.5, "Q4_K": 7.5, "Q5_K": 15.5}.get(form, 0.0)
    size = std / _std(form, blocks, (1.0, middle))
    for at, scale in zip(quants.QUANTS[form].halves_at, (size, size * middle), strict=False):
        blocks[:, at : at + 2] = (scale * rng.uniform(0.8, 1.2, (n, 1))).astype(np.float16).view(np.uint8)
    return blocks


def _std(form: str, blocks: np.ndarray, scales: tuple[float, float]) -> float:
    blocks = blocks.copy()
    for at, scale in zip(quants.QUANTS[form].halves_at, scales, strict=False):
        blocks[:, at : at + 2] = np.array([[scale]], np.float16).view(np.uint8)
    return float(quants.dequantize(form, blocks).std())
