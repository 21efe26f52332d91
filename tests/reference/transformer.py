"""The whole transformer as a formula: NumPy, float64, nothing of pyrt.

A model is a dict of knobs (the rows of csrc/model/config.def) and a dict of tensors under core names; what it
computes is written here once, for reading and as the judge of everything faster.  Shapes: ``n`` tokens of one
sequence, ``d`` the width, linear weights ``[out, in]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray


def same(name: str, x: Array) -> Array:
    return x


class Transformer:
    """One model.

    ``dtype``: float64 is the reference; float32 does the same steps in float32, which shows how much of a
    difference rounding alone explains.  ``rounded(name, x)`` stands for what an implementation does to a
    value before use: it sees the input of every linear layer under the layer's name, and the new keys and
    values under ``"key"`` and ``"value"``.
    """

    def __init__(
        self,
        knobs: Mapping[str, Any],
        tensors: Mapping[str, Array],
        dtype: type = np.float64,
        rounded: Callable[[str, Array], Array] = same,
    ) -> None:
        self.knobs, self.tensors, self.dtype, self.rounded = knobs, tensors, dtype, rounded

    def weight(self, name: str) -> Array:
        return self.tensors[name].astype(self.dtype)

    def logits(self, tokens: Array) -> Array:
        """[n] token ids -> [n, n_vocab] logits."""
        k, positions = self.knobs, np.arange(len(tokens))
        x = self.embed(tokens, positions)
        for i in range(k["n_layers"]):
            layer = f"layers.{i}."
            attended = self.attention(i, self.norm(layer + "attn_norm", x), positions)
            x = x + (self.norm(layer + "attn_post_norm", attended) if k["post_norms"] else attended)
            fed = self.mlp(i, self.norm(layer + "mlp_norm", x))
            x = x + (self.norm(layer + "mlp_post_norm", fed) if k["post_norms"] else fed)
        x = self.norm("final_norm", x)
        return self.linear("head" if "head" in self.tensors else "embed", x)

    def embed(self, tokens: Array, positions: Array) -> Array:
        x = self.tensors["embed"][tokens].astype(self.dtype) * self.dtype(self.knobs["embed_scale"])
        return x + self.weight("pos_embed")[positions] if self.knobs["n_positions"] else x

    def norm(self, name: str, x: Array) -> Array:
        """RMSNorm x / rms(x) * w, or LayerNorm (x - mean) / std * w + b; over the last axis."""
        if self.knobs["norm"] == "layer":
            x = x - x.mean(-1, keepdims=True)
        std = np.sqrt((x * x).mean(-1, keepdims=True) + self.dtype(self.knobs["norm_eps"]))
        y = x / std * self.weight(name)
        return y + self.weight(name + ".bias") if name + ".bias" in self.tensors else y

    def linear(self, name: str, x: Array) -> Array:
        y = self.rounded(name, x) @ self.weight(name).T
        return y + self.weight(name + ".bias") if name + ".bias" in self.tensors else y

    def attention(self, i: int, x: Array, positions: Array, causal: bool = True) -> Array:
        """Grouped-query attention of layer i: [n, d] -> [n, d]."""
        k, layer, n = self.knobs, f"layers.{i}.", len(x)
        q = self.linear(layer + "q", x).reshape(n, k["n_heads"], k["head_dim"])
        key = self.linear(layer + "k", x).reshape(n, k["n_kv_heads"], k["head_dim"])
        value = self.linear(layer + "v", x).reshape(n, k["n_kv_heads"], k["head_dim"])
        if k["qk_norm"]:
            q, key = self.norm(layer + "q_norm", q), self.norm(layer + "k_norm", key)
        q, key = self.rope(i, q, positions), self.rope(i, key, positions)
        key, value = self.rounded("key", key), self.rounded("value", value)
        group = k["n_heads"] // k["n_kv_heads"]
        key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)

        scores = np.einsum("ihd,jhd->hij", q, key) * self.dtype(k["attn_scale"])
        if causal:
            ago = positions[:, None] - positions[None, :]
            seen = ago >= 0
            if window := k["layer_window"][i]:
                seen &= ago < window
            scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = p / p.sum(-1, keepdims=True)
        return self.linear(layer + "o", np.einsum("hij,jhd->ihd", p, value).reshape(n, -1))

    def rope(self, i: int, x: Array, positions: Array) -> Array:
        """Rotate pairs among the first rope_dim channels of [n, heads, head_dim] by position * frequency.

        The angle is a float32 product, as in the models' own code; its sine and cosine are exact.
        """
        layout, r = self.knobs["rope_layout"], self.knobs["rope_dim"]
        if layout == "none":
            return x
        inv_freq = self.tensors[f"rope.{self.knobs['layer_rope'][i]}"].astype(np.float32)
        angle = (positions.astype(np.float32)[:, None] * inv_freq).astype(np.float64)[:, None, :]
        cos, sin = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        first, second = (
            (slice(0, r // 2), slice(r // 2, r)) if layout == "half" else (slice(0, r, 2), slice(1, r, 2))
        )
        a, b, y = x[..., first], x[..., second], x.copy()
        y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
        return y

    def mlp(self, i: int, x: Array) -> Array:
        """down(act(gate(x)) * up(x)), or down(act(up(x)))."""
        layer, act = f"layers.{i}.", ACTIVATIONS[self.knobs["activation"]]
        up = self.linear(layer + "up", x)
        hidden = act(self.linear(layer + "gate", x)) * up if self.knobs["gated_mlp"] else act(up)
        return self.linear(layer + "down", hidden)


def _silu(x: Array) -> Array:
    with np.errstate(over="ignore"):  # exp(-x) = inf for x far below zero gives the right limit, -0
        return x / (1 + np.exp(-x))


def _gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x**3)))


def _gelu_erf(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / x.dtype.type(math.sqrt(2))))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}


def rounding_error(knobs: Mapping[str, Any], tensors: Mapping[str, Array], tokens: Array) -> Array:
    """[n, 1]: per token, the largest error that float32 arithmetic makes in these very logits.

    Two right float32 implementations differ by a small multiple of this, from the order of their sums.
    """
    exact = Transformer(knobs, tensors).logits(tokens)
    single = Transformer(knobs, tensors, np.float32).logits(tokens)
    return np.abs(single - exact).max(-1, keepdims=True)
