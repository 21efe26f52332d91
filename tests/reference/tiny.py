"""Small random models in the core's own terms, knobs and named float32 tensors, one of each family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Model = tuple[dict[str, Any], dict[str, np.ndarray]]

# What makes the three families differ; sizes come from ``tiny``.
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"activation": "silu", "rope_layout": "half"},
    "gemma3": {"activation": "gelu_tanh", "rope_layout": "half", "qk_norm": True, "post_norms": True},
    "gpt2": {"activation": "gelu_tanh", "rope_layout": "none", "norm": "layer", "gated_mlp": False},
}


def tiny(family: str, *, seed: int = 0, tied: bool = True, biases: bool | None = None, **sizes: Any) -> Model:
    """A random model of ``family``, whose logits are of order 10 and depend on every tensor.

    ``biases``: None for those of the family. ``sizes``: knobs to change.
    """
    knobs = _knobs(family, sizes)
    rng = np.random.default_rng(seed)
    tensors = {name: _random(name, shape, rng) for name, shape in shapes(knobs, tied).items()}
    if biases if biases is not None else family == "gpt2":
        linear = [n for n in tensors if tensors[n].ndim == 2 and n.startswith("layers.")]
        biased = linear + [n for n in tensors if n.endswith("norm") and knobs["norm"] == "layer"]
        for name in biased:
            tensors[name + ".bias"] = _random(name + ".bias", tensors[name].shape[:1], rng)
    for s in range(1 + max(knobs["layer_rope"]) if knobs["rope_layout"] != "none" else 0):
        exponent = np.arange(0, knobs["rope_dim"], 2) / knobs["rope_dim"]
        tensors[f"rope.{s}"] = ((1e4, 1e3)[s] ** -exponent).astype(np.float32)
    return knobs, tensors


def shapes(knobs: dict[str, Any], tied: bool) -> dict[str, tuple[int, ...]]:
    """The weights of a model without its biases."""
    k, d, width = knobs, knobs["d_model"], knobs["n_heads"] * knobs["head_dim"]
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (d,), "q": (width, d), "k": (k["n_kv_heads"] * k["head_dim"], d),
        "v": (k["n_kv_heads"] * k["head_dim"], d), "o": (d, width), "mlp_norm": (d,), "up": (k["d_ff"], d),
        "down": (d, k["d_ff"]),
    }  # fmt: skip
    if k["gated_mlp"]:
        layer["gate"] = (k["d_ff"], d)
    if k["qk_norm"]:
        layer |= {"q_norm": (k["head_dim"],), "k_norm": (k["head_dim"],)}
    if k["post_norms"]:
        layer |= {"attn_post_norm": (d,), "mlp_post_norm": (d,)}
    model: dict[str, tuple[int, ...]] = {"embed": (k["n_vocab"], d), "final_norm": (d,)}
    if k["n_positions"]:
        model["pos_embed"] = (k["n_positions"], d)
    if not tied:
        model["head"] = (k["n_vocab"], d)
    return model | {f"layers.{i}.{name}": s for i in range(k["n_layers"]) for name, s in layer.items()}


def _knobs(family: str, sizes: dict[str, Any]) -> dict[str, Any]:
    knobs = {
        "n_vocab": 300, "n_layers": 3, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "head_dim": 32,
        "d_ff": 160, "norm": "rms", "norm_eps": 1e-5, "gated_mlp": True, "qk_norm": False,
        "post_norms": False, "n_positions": 0,
    }  # fmt: skip
    if family == "gemma3":
        knobs |= {"n_layers": 7, "n_kv_heads": 1}
    if family == "gpt2":
        knobs |= {"n_kv_heads": 4, "n_positions": 256, "head_dim": sizes.get("d_model", 64) // 4}
    knobs |= _FAMILIES[family] | sizes
    local = [family == "gemma3" and (i + 1) % 6 != 0 for i in range(knobs["n_layers"])]
    derived = {
        "embed_scale": float(np.float32(math.sqrt(knobs["d_model"]))) if family == "gemma3" else 1.0,
        "attn_scale": 1 / math.sqrt(knobs["head_dim"]),
        "rope_dim": 0 if family == "gpt2" else knobs["head_dim"],
        "layer_window": [5 if here else 0 for here in local],
        "layer_rope": [int(here) for here in local],
    }
    return derived | knobs


def _random(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape)
    if name.endswith("norm"):
        return (1 + 0.2 * noise).astype(np.float32)
    if len(shape) == 1:
        return (0.2 * noise).astype(np.float32)
    scale = 0.5 if name in ("embed", "pos_embed") else 1.2 / math.sqrt(shape[1])
    return (scale * noise).astype(np.float32)
