"""What a model is: the knobs of csrc/model/config.def, read from config.json or a GGUF header and checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyrt import rope
from pyrt.archs import ARCHS, HF_ACTIVATIONS, Arch, Dialect, find_arch
from pyrt.checkpoint import CONFIG, Checkpoint
from pyrt.errors import ModelFormatError
from pyrt.gguf import GGUFFile
from pyrt.header import Header
from pyrt.tensors import quoted

# The limits of csrc/model/config.cc or below, and far above any real model.
MAX_LAYERS = 10_000
MAX_WIDTH = 1 << 20
MAX_HEADS = 1 << 14
MAX_HEAD_DIM = 1 << 10
MAX_FF = 1 << 22
MAX_VOCAB = 1 << 24
MAX_POSITIONS = rope.MAX_POSITIONS


class Shape(NamedTuple):
    """A tensor of a model. ``kind``: its core name without the layer; ``layer`` is -1 outside of layers."""

    kind: str
    layer: int
    rows: int
    cols: int
    bias: bool = False

    @property
    def name(self) -> str:
        layer = f"layers.{self.layer}." if self.layer >= 0 else ""
        return layer + self.kind + (".bias" if self.bias else "")

    @property
    def vector(self) -> bool:
        """Whether it has one dimension, ``cols``; ``rows`` is 1 then."""
        return self.bias or self.kind.endswith("norm")


@dataclass(frozen=True, eq=False)
class ModelConfig:
    """A model without its weights.

    ``arch`` is a key of ``ARCHS``; ``knobs`` are exactly the rows of csrc/model/config.def; ``rope_freqs``
    are the tensors ``rope.0``, ``rope.1``...: float32[rope_dim / 2] each. ``context_length`` is in tokens.
    ``tied``: the head is the embedding. ``biases``: core names, without the layer, of what adds a bias.
    """

    arch: str
    knobs: dict[str, Any]
    rope_freqs: tuple[np.ndarray, ...]
    context_length: int
    tied: bool
    biases: frozenset[str]

    def shapes(self) -> Iterator[Shape]:
        """Every weight of the model, in the order in which it is used."""
        k = self.knobs
        d, attended, grouped = k["d_model"], k["n_heads"] * k["head_dim"], k["n_kv_heads"] * k["head_dim"]
        layer = {
            "attn_norm": (1, d), "q": (attended, d), "k": (grouped, d), "v": (grouped, d), "o": (d, attended),
            "q_norm": (1, k["head_dim"]), "k_norm": (1, k["head_dim"]), "attn_post_norm": (1, d),
            "mlp_norm": (1, d), "gate": (k["d_ff"], d), "up": (k["d_ff"], d), "down": (d, k["d_ff"]),
            "mlp_post_norm": (1, d),
        }  # fmt: skip
        optional = {"q_norm": "qk_norm", "k_norm": "qk_norm", "attn_post_norm": "post_norms",
                    "mlp_post_norm": "post_norms", "gate": "gated_mlp"}  # fmt: skip
        layer = {name: size for name, size in layer.items() if k.get(optional.get(name, ""), True)}

        yield Shape("embed", -1, k["n_vocab"], d)
        if k["n_positions"]:
            yield Shape("pos_embed", -1, k["n_positions"], d)
        for i in range(k["n_layers"]):
            for kind, size in layer.items():
                yield from self._with_bias(Shape(kind, i, *size))
        yield from self._with_bias(Shape("final_norm", -1, 1, d))
        if not self.tied:
            yield Shape("head", -1, k["n_vocab"], d)

    def _with_bias(self, shape: Shape) -> Iterator[Shape]:
        yield shape
        if shape.kind in self.biases:
            yield Shape(shape.kind, shape.layer, 1, shape.cols if shape.vector else shape.rows, bias=True)


def read_config(source: GGUFFile | Checkpoint) -> ModelConfig:
    """Describe an open model.

    ModelFormatError names file, key and reason if a value is missing, of the wrong kind, absurd or at odds
    with another; UnsupportedModelError if the model needs something that pyrt lacks.
    """
    if isinstance(source, GGUFFile):
        return _config_from_gguf(source)
    return config_from_hf(source.config, source.path / CONFIG, source.tensors)


def config_from_hf(
    config: Mapping[str, Any], where: str | Path = CONFIG, tensors: Collection[str] = ()
) -> ModelConfig:
    """Describe the model of a config.json alone; ``where`` begins messages, ``tensors`` help to word them.

    Raises what ``read_config`` raises.
    """
    header = Header(str(where), config)
    name = _hf_name(header)
    key = find_arch("hf", name, tensors or config, header.where)
    arch = ARCHS[key]
    knobs, context_length = _knobs(header, arch, arch.hf)
    if "activation" in arch.hf.keys:
        knobs["activation"] = _activation(header, arch, arch.hf.keys["activation"])
    return ModelConfig(
        arch=key,
        knobs=knobs,
        rope_freqs=_used(rope.from_hf(header, arch.ropes, knobs["rope_dim"]), knobs),
        context_length=context_length,
        tied=header.flag("tie_word_embeddings", arch.tied),
        biases=frozenset(n for n, flag in arch.biases.items() if not flag or header.flag(flag, False)),
    )


def _config_from_gguf(source: GGUFFile) -> ModelConfig:
    where = str(source.path)
    name = Header(where, source.metadata).text("general.architecture")
    key = find_arch("gguf", name, source.tensors, where)
    header, arch = Header(where, source.metadata, name + "."), ARCHS[key]
    embed = arch.gguf.tensors["embed"] + ".weight"
    if embed not in source.tensors or len(source.tensors[embed].shape) != 2:
        raise ModelFormatError(f"{where}: tensor {quoted(embed)}: there is no such matrix")
    knobs, context_length = _knobs(header, arch, arch.gguf, n_vocab=source.tensors[embed].shape[0])
    divisors = _divisors(source, knobs["rope_dim"])

    def has(layer: str, end: str) -> bool:
        stem = arch.gguf.tensors[layer].replace("{i}", "0")
        return stem + end in source.tensors or (layer in ("q", "k", "v") and has("qkv", end))

    return ModelConfig(
        arch=key,
        knobs=knobs,
        rope_freqs=_used(rope.from_gguf(header, arch.ropes, knobs["rope_dim"], divisors), knobs),
        context_length=context_length,
        tied=not has("head", ".weight"),
        biases=frozenset(n for n, flag in arch.biases.items() if not flag or has(n, ".bias")),
    )


def _knobs(
    header: Header, arch: Arch, dialect: Dialect, n_vocab: int | None = None
) -> tuple[dict[str, Any], int]:
    """The knobs, and the context length; ``n_vocab`` stands in where the header does not say."""

    def size(field: str, high: int, default: int | None = None) -> int:
        key = dialect.keys.get(field)
        return default if key is None and default else header.integer(key or field, 1, high, default)

    for key, only in dialect.fixed.items():
        header.refuse_others(key, only)
    n_layers = size("n_layers", MAX_LAYERS)
    d_model, n_heads = size("d_model", MAX_WIDTH), size("n_heads", MAX_HEADS)
    n_kv_heads = size("n_kv_heads", MAX_HEADS, n_heads)
    if n_heads % n_kv_heads:
        raise header.error(dialect.keys["n_kv_heads"], f"{n_kv_heads} does not divide the {n_heads} heads")
    head_dim = size("head_dim", MAX_HEAD_DIM, d_model // n_heads or None)
    if head_dim * n_heads != d_model and header.get(dialect.keys.get("head_dim", "")) is None:
        raise header.error(dialect.keys["n_heads"], f"{n_heads} heads do not divide the width of {d_model}")
    if size("value_dim", MAX_HEAD_DIM, head_dim) != head_dim:
        raise header.unsupported(dialect.keys["value_dim"], f"is not the size of a key, {head_dim}")
    rope_dim = size("rope_dim", MAX_HEAD_DIM, head_dim) if arch.ropes else 0
    if rope_dim % 2 or rope_dim > head_dim:
        key = dialect.keys.get("rope_dim", dialect.keys["head_dim"])
        raise header.error(key, f"{rope_dim} channels of {head_dim} in a head cannot be rotated in pairs")
    context_length = size("context_length", MAX_POSITIONS, dialect.defaults.get("context_length"))
    local = _local_layers(header, arch, dialect, n_layers)
    window = size("window", MAX_POSITIONS) if any(local) else 0
    knobs = dict(arch.knobs) | {
        "n_vocab": size("n_vocab", MAX_VOCAB, n_vocab),
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "head_dim": head_dim,
        "d_ff": size("d_ff", MAX_FF, arch.mlp_ratio * d_model or None),
        "norm_eps": header.number(dialect.keys["norm_eps"], 0.1, dialect.defaults.get("norm_eps")),
        "embed_scale": float(np.float32(math.sqrt(d_model))) if arch.scaled_embedding else 1.0,
        "attn_scale": 1 / math.sqrt(_query_scalar(header, arch, dialect, n_layers, head_dim)),
        "rope_layout": dialect.rope_layout,
        "rope_dim": rope_dim,
        "layer_window": [window if here else 0 for here in local],
        "layer_rope": [int(here and len(arch.ropes) > 1) for here in local],
        "n_positions": context_length if arch.learned_positions else 0,
    }
    return knobs, context_length


def _used(sets: tuple[np.ndarray, ...], knobs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Without a set for sliding windows where no layer has one."""
    return sets[: 1 + max(knobs["layer_rope"])]


def _hf_name(header: Header) -> str:
    """The class that transformers would load, or the ``model_type`` if it is not said."""
    for inner in ("text_config", "vision_config", "audio_config"):
        if header.get(inner) is not None:
            raise header.unsupported(inner, "models that join text with other inputs are not supported")
    classes = header.get("architectures")
    if classes is None or classes == []:
        return header.text("model_type")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise header.error("architectures", "must be a list of strings")
    return str(classes[0])


def _activation(header: Header, arch: Arch, key: str) -> str:
    name = header.get(key)
    if name is None:
        return str(arch.knobs["activation"])
    if not isinstance(name, str) or name not in HF_ACTIVATIONS:
        known = ", ".join(HF_ACTIVATIONS)
        raise header.unsupported(key, f"{ascii(name)[:60]} is not supported, only {known}")
    return HF_ACTIVATIONS[name]


def _local_layers(header: Header, arch: Arch, dialect: Dialect, n_layers: int) -> list[bool]:
    """For each layer, whether it sees a sliding window only."""
    kinds = header.get("layer_types")
    if kinds is not None:
        known = ("full_attention", "sliding_attention") if arch.window_period else ("full_attention",)
        if not isinstance(kinds, list) or len(kinds) != n_layers or not all(kind in known for kind in kinds):
            raise header.error("layer_types", f"must be a list of {n_layers}, each of {', '.join(known)}")
        return [kind == "sliding_attention" for kind in kinds]
    if not arch.window_period:
        if "window" in dialect.keys:
            header.refuse_others(dialect.keys["window"], 0)
        return [False] * n_layers
    key = dialect.keys["window_period"]
    said = header.get(key)
    if isinstance(said, list | np.ndarray):  # GGUF may have one bool a layer
        if len(said) != n_layers or not all(type(here) in (bool, np.bool_) for here in said):
            raise header.error(key, f"must be a number or {n_layers} bools")
        return [bool(here) for here in said]
    period = header.integer(key, 1, MAX_LAYERS, arch.window_period)
    return [(i + 1) % period != 0 for i in range(n_layers)]


def _query_scalar(header: Header, arch: Arch, dialect: Dialect, n_layers: int, head_dim: int) -> float:
    if "query_scalar" in dialect.keys:
        return header.number(dialect.keys["query_scalar"], float(MAX_WIDTH))
    return arch.query_scalars.get(n_layers, head_dim)


def _divisors(source: GGUFFile, rope_dim: int) -> np.ndarray | None:
    """The tensor rope_freqs, by which llama.cpp's converter writes Llama 3's frequency scaling."""
    info = source.tensors.get("rope_freqs.weight")
    if info is None:
        return None
    field = f"{source.path}: tensor 'rope_freqs.weight'"
    if info.format != "F32" or info.shape != (rope_dim // 2,):
        reason = f"must be {rope_dim // 2} F32 numbers, not {info.shape} {info.format}"
        raise ModelFormatError(f"{field}: {reason}")
    divisors = np.frombuffer(source.data(info.name).tobytes(), "<f4")
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise ModelFormatError(f"{field}: must be finite numbers above 0")
    return divisors
