"""What pyrt knows about architectures: facts that model files leave out, and the names that files use.

An architecture is one entry of ``ARCHS``, made of data only; ``config`` and ``weights`` read it. To add one
whose parts exist, write an entry, with the source of each fact beside it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pyrt.errors import UnsupportedModelError
from pyrt.tensors import quoted


class Dialect(NamedTuple):
    """How one kind of file writes an architecture down.

    ``names``: the class in ``architectures``, else ``model_type`` (config.json), or ``general.architecture``.
    ``keys``: field of ours -> key in the file's header (GGUF's without the architecture in front).
    ``tensors``: core name -> stem of the tensor's name, to which ``.weight`` or ``.bias`` is added; ``{i}``
    is the layer. ``prefixes``: what may stand before any tensor's name.
    ``ignored``: tensors that are buffers and not weights.
    ``fixed``: keys that change the computation in a way pyrt lacks, unless absent or of the value given here.
    ``transposed``: the layers' linear weights are stored [in, out]. ``norm_offset``: added to norm weights.
    ``defaults``: fields of ours that a header may leave out, and what transformers' config class has then.
    """

    names: tuple[str, ...]
    keys: Mapping[str, str]
    tensors: Mapping[str, str]
    rope_layout: str = "none"
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = MappingProxyType({})
    transposed: bool = False
    norm_offset: float = 0.0
    defaults: Mapping[str, Any] = MappingProxyType({})


class Rope(NamedTuple):
    """One set of rotary frequencies: the key of its base in each kind of file, and the base without it."""

    hf_key: str
    gguf_key: str
    theta: float


class Arch(NamedTuple):
    """One architecture.

    ``knobs``: rows of csrc/model/config.def that are the same for all its models.
    ``tied``: whether the head is the embedding where config.json does not say; a GGUF file shows it.
    ``biases``: layer -> the key of config.json that says whether it has a bias; "" means that it always has.
    ``ropes``: by kind of layer. ``window_period``: every so-many-th layer sees everything, the others a
    window; 0: all layers see everything. ``scaled_embedding``: the embedding is multiplied by sqrt(d_model).
    ``learned_positions``: a table of position vectors, one for each token of the context, is added to it.
    ``query_scalars``: number of layers -> q·k is divided by the root of this, if the file has no key for it;
    in other models by the root of head_dim. ``mlp_ratio``: d_ff / d_model if the file has none (0: it must).
    """

    knobs: Mapping[str, Any]
    hf: Dialect
    gguf: Dialect
    tied: bool
    biases: Mapping[str, str]
    ropes: Mapping[str, Rope]
    window_period: int = 0
    scaled_embedding: bool = False
    learned_positions: bool = False
    query_scalars: Mapping[int, int] = MappingProxyType({})
    mlp_ratio: int = 0


_HF_KEYS = {
    "n_vocab": "vocab_size", "n_layers": "num_hidden_layers", "d_model": "hidden_size",
    "n_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads", "head_dim": "head_dim",
    "d_ff": "intermediate_size", "context_length": "max_position_embeddings", "norm_eps": "rms_norm_eps",
    "activation": "hidden_act",
}  # fmt: skip

_HF_FIXED = {"quantization_config": None, "partial_rotary_factor": 1.0}

# transformers' activations.py, ACT2FN, in the words of csrc/model/config.def.
HF_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu_erf", "gelu_python": "gelu_erf", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip

# gguf-py/gguf/constants.py, class Keys, and MODEL_TENSOR with TENSOR_NAMES: the same for all architectures.
_GGUF_KEYS = {
    "n_vocab": "vocab_size", "n_layers": "block_count", "d_model": "embedding_length",
    "n_heads": "attention.head_count", "n_kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "value_dim": "attention.value_length", "d_ff": "feed_forward_length",
    "context_length": "context_length", "norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_dim": "rope.dimension_count",
    "window": "attention.sliding_window", "window_period": "attention.sliding_window_pattern",
}  # fmt: skip
_GGUF_FIXED = {
    "expert_count": 0, "attention.causal": True, "attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0,
    "attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0, "logit_scale": 1.0, "embedding_scale": 1.0,
    "residual_scale": 1.0, "rope.scaling.attn_factor": 1.0,
}  # fmt: skip
_GGUF_TENSORS = {
    "embed": "token_embd", "pos_embed": "position_embd", "final_norm": "output_norm", "head": "output",
    "attn_norm": "blk.{i}.attn_norm", "q": "blk.{i}.attn_q", "k": "blk.{i}.attn_k", "v": "blk.{i}.attn_v",
    "qkv": "blk.{i}.attn_qkv", "o": "blk.{i}.attn_output", "q_norm": "blk.{i}.attn_q_norm",
    "k_norm": "blk.{i}.attn_k_norm", "attn_post_norm": "blk.{i}.post_attention_norm",
    "mlp_norm": "blk.{i}.ffn_norm", "gate": "blk.{i}.ffn_gate", "up": "blk.{i}.ffn_up",
    "down": "blk.{i}.ffn_down", "mlp_post_norm": "blk.{i}.post_ffw_norm",
}  # fmt: skip

# transformers' modeling_llama.py, whose names most later models keep.
_LLAMA_TENSORS = {
    "embed": "embed_tokens", "final_norm": "norm", "head": "lm_head",
    "attn_norm": "layers.{i}.input_layernorm", "q": "layers.{i}.self_attn.q_proj",
    "k": "layers.{i}.self_attn.k_proj", "v": "layers.{i}.self_attn.v_proj",
    "o": "layers.{i}.self_attn.o_proj", "mlp_norm": "layers.{i}.post_attention_layernorm",
    "gate": "layers.{i}.mlp.gate_proj", "up": "layers.{i}.mlp.up_proj",
    "down": "layers.{i}.mlp.down_proj",
}  # fmt: skip
_ATTENTION_BIASES = dict.fromkeys(("q", "k", "v", "o"), "attention_bias")


ARCHS: dict[str, Arch] = {
    # Llama 1 to 3.x and what shares their files. Source: transformers' modeling_llama.py (rotate_half pairs
    # channel i with i + d/2). llama.cpp's convert_hf_to_gguf.py reorders the rows of q and k, so that in GGUF
    # the pairs are neighbours, and writes Llama 3's frequency scaling as divisors into the tensor rope_freqs.
    "llama": Arch(
        knobs={"norm": "rms", "activation": "silu", "gated_mlp": True, "qk_norm": False, "post_norms": False},
        hf=Dialect(("LlamaForCausalLM", "llama"), _HF_KEYS, _LLAMA_TENSORS, "half", prefixes=("model.", ""),
                   defaults={"context_length": 2048, "norm_eps": 1e-6}, fixed=_HF_FIXED,
                   ignored=("layers.{i}.self_attn.rotary_emb.inv_freq",)),
        gguf=Dialect(("llama",), _GGUF_KEYS, _GGUF_TENSORS, "pairs", fixed=_GGUF_FIXED,
                     ignored=("rope_freqs.weight", "blk.{i}.attn_rot_embd.weight")),
        tied=False,
        biases=_ATTENTION_BIASES | dict.fromkeys(("gate", "up", "down"), "mlp_bias"),
        ropes={"full_attention": Rope("rope_theta", "rope.freq_base", 10_000.0)},
    ),
    # Gemma 3, text. Source: transformers' configuration_gemma3.py and modeling_gemma3.py: every 6th layer
    # sees everything, the others have a window and the base 10,000; q and k are normed per head; norms stand
    # before and after both halves of a layer, their weights stored as w - 1 (in GGUF as w, says llama.cpp's
    # convert_hf_to_gguf.py). The embedding is scaled by sqrt(d_model) in the precision of the computation,
    # float32 here. llama.cpp knows one fact more: 27B, with its 62 layers, divides q·k by sqrt(5376 / 32).
    "gemma3": Arch(
        knobs={"norm": "rms", "activation": "gelu_tanh", "gated_mlp": True, "qk_norm": True,
               "post_norms": True},
        hf=Dialect(
            ("Gemma3ForCausalLM", "gemma3_text"),
            _HF_KEYS | {"activation": "hidden_activation", "window": "sliding_window",
                        "window_period": "sliding_window_pattern", "query_scalar": "query_pre_attn_scalar"},
            _LLAMA_TENSORS | {
                "q_norm": "layers.{i}.self_attn.q_norm", "k_norm": "layers.{i}.self_attn.k_norm",
                "attn_post_norm": "layers.{i}.post_attention_layernorm",
                "mlp_norm": "layers.{i}.pre_feedforward_layernorm",
                "mlp_post_norm": "layers.{i}.post_feedforward_layernorm"},
            "half", prefixes=("model.", ""), norm_offset=1.0,
            defaults={"context_length": 131_072, "norm_eps": 1e-6},
            fixed=_HF_FIXED | {"attn_logit_softcapping": None, "final_logit_softcapping": None,
                               "use_bidirectional_attention": False},
        ),
        gguf=Dialect(("gemma3",), _GGUF_KEYS, _GGUF_TENSORS, "half", fixed=_GGUF_FIXED),
        tied=True,
        biases=_ATTENTION_BIASES,
        ropes={"full_attention": Rope("rope_theta", "rope.freq_base", 1_000_000.0),
               "sliding_attention": Rope("rope_local_base_freq", "rope.freq_base_swa", 10_000.0)},
        window_period=6, scaled_embedding=True, query_scalars={62: 168},
    ),
    # GPT-2. Source: transformers' modeling_gpt2.py (Conv1D keeps weights as [in, out]; c_attn is q, k and v
    # side by side; attn.bias is the causal mask), configuration_gpt2.py (n_inner null means 4 * n_embd) and
    # activations.py ("gelu_new" is the tanh form). The hub's file has no "transformer." before its names.
    "gpt2": Arch(
        knobs={"norm": "layer", "activation": "gelu_tanh", "gated_mlp": False, "qk_norm": False,
               "post_norms": False},
        hf=Dialect(
            ("GPT2LMHeadModel", "gpt2"),
            {"n_vocab": "vocab_size", "n_layers": "n_layer", "d_model": "n_embd", "n_heads": "n_head",
             "d_ff": "n_inner", "context_length": "n_positions", "norm_eps": "layer_norm_epsilon",
             "activation": "activation_function"},
            {"embed": "wte", "pos_embed": "wpe", "final_norm": "ln_f", "head": "lm_head",
             "attn_norm": "h.{i}.ln_1", "qkv": "h.{i}.attn.c_attn", "o": "h.{i}.attn.c_proj",
             "mlp_norm": "h.{i}.ln_2", "up": "h.{i}.mlp.c_fc", "down": "h.{i}.mlp.c_proj"},
            prefixes=("transformer.", ""), transposed=True,
            defaults={"context_length": 1024, "norm_eps": 1e-5},
            ignored=("h.{i}.attn.bias", "h.{i}.attn.masked_bias"),
            fixed=_HF_FIXED | {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
                               "add_cross_attention": False},
        ),
        gguf=Dialect(("gpt2",), _GGUF_KEYS | {"norm_eps": "attention.layer_norm_epsilon"}, _GGUF_TENSORS,
                     fixed=_GGUF_FIXED),
        tied=True,
        biases=dict.fromkeys(("attn_norm", "q", "k", "v", "o", "mlp_norm", "up", "down", "final_norm"), ""),
        ropes={},
        learned_positions=True, mlp_ratio=4,
    ),
}  # fmt: skip


def find_arch(kind: str, name: str, seen: Iterable[str], where: str) -> str:
    """The key of ``ARCHS`` for what a file calls itself.

    UnsupportedModelError names it, the closest family, and some tensors that that family does not have.

    ``kind``: "hf" or "gguf". ``seen``: the file's tensor names, or its header's keys if it has no tensors.
    """
    for key, arch in ARCHS.items():
        if name in getattr(arch, kind).names:
            return key
    found = {template(n) for n in seen}
    known = {key: _known_names(getattr(arch, kind)) for key, arch in ARCHS.items()}

    def likeness(key: str) -> tuple[float, float]:
        shared = len(found & known[key]) / len(found | known[key])
        return shared, difflib.SequenceMatcher(None, name, key).ratio()

    closest = max(ARCHS, key=likeness)
    lacking = sorted(n for n in found - known[closest] if n.endswith((".weight", ".bias")))
    reason = f"is none of {', '.join(ARCHS)}; the closest is {closest}"
    if lacking:
        reason += f", which has no {', '.join(lacking[:3])}" + (", ..." if len(lacking) > 3 else "")
    raise UnsupportedModelError(f"{where}: architecture {quoted(name)}: {reason}")


def template(name: str) -> str:
    """A tensor's name with ``{i}`` for the number of its layer."""
    return re.sub(r"(^|\.)\d+\.", r"\1{i}.", name, count=1)


def _known_names(dialect: Dialect) -> set[str]:
    """What a file of this dialect may hold: templates of tensor names, and keys of the header."""
    stems = {prefix + stem for stem in dialect.tensors.values() for prefix in dialect.prefixes}
    ignored = {prefix + name for name in dialect.ignored for prefix in dialect.prefixes}
    tensors = {stem + end for stem in stems for end in (".weight", ".bias")}
    return tensors | ignored | set(dialect.keys.values())
