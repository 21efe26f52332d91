"""Write a model (core-named tensors, rope layout "half") as a GGUF file, the way llama.cpp's converter does.

What it takes for granted about names and layouts is written here from convert_hf_to_gguf.py, apart from pyrt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Encode = Callable[[str, np.ndarray], tuple[str, np.ndarray]]

_NAMES = {
    "embed": "token_embd", "pos_embed": "position_embd", "final_norm": "output_norm", "head": "output",
    "attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "attn_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
    "mlp_post_norm": "post_ffw_norm",
}  # fmt: skip


def as_type(form: str) -> Encode:
    """Matrices quantized to ``form`` by the gguf package, vectors and position tables in float32."""

    def encode(name: str, weights: np.ndarray) -> tuple[str, np.ndarray]:
        if weights.ndim == 1 or name == "pos_embed":
            return "F32", weights.astype(np.float32)
        kind = gguf.GGMLQuantizationType[form]
        return form, gguf.quants.quantize(weights.astype(np.float32), kind)

    return encode


AS_F32 = as_type("F32")


def write_gguf(
    path: Path,
    family: str,
    knobs: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    encode: Encode = AS_F32,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """``extra``: header keys to add, or to leave out where the value is None; its kinds are Python's."""
    writer = gguf.GGUFWriter(path, family)
    for key, value in (_header(family, knobs, tensors) | dict(extra or {})).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    for name, value in _file_tensors(family, knobs, tensors).items():
        form, data = encode(name, value)
        writer.add_tensor(_file_name(name), data, raw_dtype=gguf.GGMLQuantizationType[form])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _header(family: str, k: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    norm = "layer_norm_rms_epsilon" if k["norm"] == "rms" else "layer_norm_epsilon"
    header = {
        "context_length": k["n_positions"] or 256, "embedding_length": k["d_model"],
        "block_count": k["n_layers"], "feed_forward_length": k["d_ff"], "attention.head_count": k["n_heads"],
        "attention.head_count_kv": k["n_kv_heads"], f"attention.{norm}": float(k["norm_eps"]),
    }  # fmt: skip
    if family != "gpt2":
        header |= {"attention.key_length": k["head_dim"], "attention.value_length": k["head_dim"]}
        header |= {"rope.dimension_count": k["rope_dim"]}
        header |= {"rope.freq_base": _base(tensors["rope.0"], k["rope_dim"])}
    if any(k["layer_window"]):
        header |= {"attention.sliding_window": max(k["layer_window"])}
        header |= {"rope.freq_base_swa": _base(tensors["rope.1"], k["rope_dim"])}
    return {f"{family}.{key}": value for key, value in header.items()}


def _base(inv_freq: np.ndarray, dim: int) -> float:
    """The base theta of unscaled frequencies theta ** (-2i / dim), a whole number."""
    return float(round(float(inv_freq[1]) ** (-dim / 2)))


def _file_tensors(
    family: str, k: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    result = {name: value for name, value in tensors.items() if not name.startswith("rope.")}
    for name in list(result):
        kind = name.removesuffix(".bias").split(".")[-1]
        if family == "llama" and kind in ("q", "k"):
            result[name] = _halves_to_pairs(result[name], k["n_heads" if kind == "q" else "n_kv_heads"])
        if family == "gpt2" and kind in ("q", "k", "v"):
            layer, end = name[: name.rindex(kind)], name[name.rindex(kind) + 1 :]
            result[layer + "qkv" + end] = np.concatenate([tensors[layer + part + end] for part in "qkv"])
            del result[name]
    return result


def _halves_to_pairs(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows i and i + head_dim / 2 of a head become 2i and 2i + 1."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _file_name(name: str) -> str:
    if name == "rope_freqs":
        return "rope_freqs.weight"
    stem, end = (name.removesuffix(".bias"), ".bias") if name.endswith(".bias") else (name, ".weight")
    *layer, kind = stem.split(".")
    kind = _NAMES.get(kind, "attn_" + kind)
    return (f"blk.{layer[1]}." if layer else "") + kind + end
